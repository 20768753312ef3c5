from ...shared import Root


LOW = HIGH = 3


class BertAttention(Root):
    def total(self):
        return LOW
