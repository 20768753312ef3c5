from ...shared import Deep, Field, Labelled, Named, Sized


class LlamaFields:
    first = Field()


class LlamaSizes:
    size = 1
    first = Sized()


class LlamaLabels:
    first = Labelled()


class LlamaDepths:
    first = Deep()


class LlamaNames:
    first = Named()
