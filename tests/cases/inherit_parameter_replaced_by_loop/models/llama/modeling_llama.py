class LlamaRotary:
    def __init__(self, config, kind=None, count=1, step=2):
        self.tables = {}
        for kind in config.kinds:
            self.tables[kind] = kind * 2
        for step in range(step):
            self.tables[step] = 0
        count += 1
        self.count = count
