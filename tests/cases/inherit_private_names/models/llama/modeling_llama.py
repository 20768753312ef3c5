class LlamaCache:
    __sizes = (1, 2)

    def __init__(self, config):
        self.__store = {}
        self.config = config

    def __get(self, key):
        return self.__store.get(key)

    def read(self, key):
        return self.__get(key), self.__sizes, getattr(self, "_LlamaCache__store")
