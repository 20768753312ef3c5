class LlamaMLP:
    a = 3
    b = 4
