TABLE = []
for i in range(3):
    TABLE.append(i)


class LlamaMLP:
    def f(self):
        return list(TABLE)
