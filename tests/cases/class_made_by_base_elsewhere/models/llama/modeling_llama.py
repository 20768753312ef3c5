from ...shared import Counting, Looking, Made, Registered


class LlamaCounting(Counting):
    pass


class LlamaLooking(Looking):
    pass


class LlamaRegistered(Registered):
    pass


class LlamaMade(Made):
    pass
