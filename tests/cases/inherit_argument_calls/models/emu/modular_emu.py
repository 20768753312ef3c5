from ..llama.modeling_llama import LlamaMLP


class EmuOrderMLP(LlamaMLP):
    def difference(self, x):
        return super().difference(b=x.pop(), a=x.pop())


class EmuUnreadMLP(LlamaMLP):
    def forward(self, x):
        return super().forward(x, mask=self.build(x), **self.more(x))

    def scale(self, x):
        return super().scale(x, shift=(shift := x + 1), factor=shift)


class EmuKeywordsMLP(LlamaMLP):
    def forward(self, x):
        return super().forward(x, size=1, other=self.build(x))


class EmuLateMLP(LlamaMLP):
    def forward(self, x):
        return super().forward(x, mask=lambda: self.build(x), more=x.size)
