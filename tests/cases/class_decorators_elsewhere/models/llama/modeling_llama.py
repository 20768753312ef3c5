from ...shared import TABLE, Times, counted, doubled, entered, limited, loud, noted, replaced, sized, tripled


@loud
class LlamaLoud:
    def forward(self):
        return "llama"


@counted
class LlamaCounted:
    size = 1


@limited(3)
class LlamaLimited:
    size = 1


@sized
class LlamaSized:
    size = 1


@replaced
class LlamaReplaced:
    def forward(self):
        return "llama"


@noted
class LlamaNoted:
    def __init__(self):
        self.size = 1


@noted
class LlamaOtherNoted:
    def __init__(self):
        self.size = 1


@Times(2)
class LlamaTimes:
    size = 1


@doubled
class LlamaDoubled:
    size = 1


@tripled
class LlamaTripled:
    size = 1


@TABLE.enter
class LlamaEntered:
    size = 1


@entered("llama")
class LlamaHandedOn:
    size = 1
