class Feed:
    scale = 5
