class LlamaMLP:
    flag = 1
