"""Files on disk: what the command line means, which folders and links there are, where generated files go, writing."""
