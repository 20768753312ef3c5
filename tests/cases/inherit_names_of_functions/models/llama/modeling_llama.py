import inspect


def traced(function):
    def wrapper(self):
        return function.__qualname__, function(self)

    return wrapper


class LlamaMLP:
    key = __qualname__

    @traced
    def who(self):
        return self.who.__qualname__

    def own(self):
        return type(self).own.__qualname__, type(self).__qualname__

    def frame(self):
        return inspect.currentframe().f_code.co_name


class LlamaNorm:
    def who(self):
        return self.who.__qualname__
