import abc


class LlamaMLP(abc.ABC):
    @abc.abstractmethod
    def f(self):
        pass
