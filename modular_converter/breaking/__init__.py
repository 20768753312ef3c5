"""What a change means for those who use models: two trees of sources are compared, and nothing of them is run."""
