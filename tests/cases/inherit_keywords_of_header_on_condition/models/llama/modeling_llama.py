from ...shared import Base


class LlamaMLP(Base, kind="mlp"):
    def name(self):
        return self.kind
