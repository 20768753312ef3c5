class LlamaNorm:
    def scale(self, *sizes):
        return sizes

    def depth(self):
        return len(type(self).__mro__)
