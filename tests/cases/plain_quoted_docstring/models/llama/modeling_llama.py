class LlamaReader:
    "The class docstring in plain quotes."

    def three(self, x):
        """Three double quotes."""
        return x

    def three_raw(self, x):
        r"""Three double quotes \d."""
        return x

    def three_single(self, x):
        '''Three "single" quotes.'''
        return x

    def plain(self, x):
        "Plain quotes."
        return x

    def single(self, x):
        'A single quote, as in "this".'
        return x

    def raw(self, x):
        r"Raw \d."
        return x

    def joined(self, x):
        "Two strings, "
        "the second of which is a statement."
        return x

    def concatenated(self, x):
        ("One string "
         "of two.")
        return x

    def one_line(self, x): "One line."

    def own(self, x):
        "The parent's."
        return x

    def inserted(self, x):
        "Not taken either."
        x = x + 1
        return x

    def left(self, x):
        "Stays, since nothing overrides it."
        return x
