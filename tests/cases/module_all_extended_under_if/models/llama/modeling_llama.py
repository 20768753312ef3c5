class LlamaMLP:
    scale = 5
