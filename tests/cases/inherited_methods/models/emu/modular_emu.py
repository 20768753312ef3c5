from ..llama.modeling_llama import LlamaCache, LlamaEmbedding, LlamaMLP, LlamaNorm


class EmuMLP(LlamaMLP):
    def forward(self, x, scale=3):
        y = super().forward(x, scale=scale)
        return [super(EmuMLP, self).forward(y, each) for each in range(super().count())]


class EmuHeirMLP(EmuMLP):
    def forward(self, x):
        return 1 + super().forward(x)

    def count(self):
        return 2


class EmuNorm(LlamaNorm):
    def forward(self, x):
        return 2 * super().forward(x)

    @property
    def size(self):
        return super().size + 1

    @staticmethod
    def norm(x):
        return LlamaNorm.norm(x) + 1

    def total(self, x):
        return LlamaNorm.forward(self, x)


class EmuCache(LlamaCache):
    def __init__(self, *args, **kwargs):
        if args:
            super().__init__(*args, **kwargs)
        else:
            super().__init__(0)

    @classmethod
    def of(cls, size):
        made = super().of(size)
        made.is_made = True
        return made


class EmuEmbedding(LlamaEmbedding):
    def forward(self, ids):
        return 2 * super().forward(ids) + super().extra(ids)

    def extra(self, ids):
        super().extra(ids)
        return LlamaEmbedding.forward(self, ids)


__all__ = ["EmuMLP", "EmuHeirMLP", "EmuNorm", "EmuCache", "EmuEmbedding"]
