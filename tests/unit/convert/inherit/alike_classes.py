"""Classes with their parents, and an expression with the same value for the merged class and with inheritance."""

from __future__ import annotations


ALIKE = {
    "names that Python binds in each class": (
        "",
        "__doc__ = 'made ' + 'here'\n__qualname__ = 'Other'\nb = 2",
        "new.__doc__, type(new).__qualname__, new.b",
    ),
    "one name of a chain": ("a = 5", "a = b = 2", "new.a, new.b"),
    "one name of a tuple": ("a = 5", "a, b = 1, 2", "new.a, new.b"),
    "one of two on a line": ("a = 5", "a = 1; b = 2", "new.a, new.b"),
    "a name that another attribute reads": ("size = 8", "size = 2\narea = size * size", "new.size, new.area"),
    "a name that a default reads": ("size = 8", "size = 2\ndef f(self, x=size):\n    return x", "new.size, new.f()"),
    "a method that an attribute reads": (
        "def _get(self):\n    return 2",
        "def _get(self):\n    return 1\nvalue = property(_get)",
        "new.value, new._get()",
    ),
    "an alias": ("def f(self):\n    return 2", "def f(self):\n    return 1\ng = f", "new.f(), new.g()"),
    "attributes that read each other": ("late = 1\nbase = late", "base = 2", "new.base"),
    "several statements for a name": ("", "names = ['a']\nnames = names + ['b']\nnames += ['c']", "new.names"),
    "a loop": ("", "names = []\nfor i in range(2):\n    names.append(i)", "new.names"),
    "a call as a statement": ("", "names = []\nnames.append(1)\ndef f(self): pass\nnames.append(2)", "new.names"),
    "a call whose value the child replaces": ("x = 3", "names = []\nx = names.append(1)", "new.names, new.x"),
    "calls whose values are assigned again": (
        "",
        "names = []\nx = names.append(1)\nx = names.append(1)\nx = names.append(2)",
        "new.names, new.x",
    ),
    "a local name of a line that both have": (
        "def f(self, x=1):\n    h = x + 1\n    super().f(x)\n    self.b = h\n    return self",
        "def f(self, x=1):\n    h = x + 1\n    self.a = h",
        "new.f().b",
    ),
    "a removal of several, one of which is set in a block": (
        "def f(self, x=1):\n    super().f(x)\n    del self.a, self.c, self.d",
        "def f(self, x=1):\n    self.a = self.d = 1\n    self.b = 2\n    if x:\n        self.c = 3",
        "new.f(), vars(new)",
    ),
    "defaults of the parent": (
        "def f(self):\n    return super().f()",
        "def f(self, w=+1, x=-1, y=(1, -2), *, z=None):\n    return w, x, y, z",
        "new.f()",
    ),
    "several signatures": (
        "from typing import overload\n@overload\ndef f(self, x: int) -> int: ...\n@overload\ndef f(self, x: str) -> str: ...\n"
        "def f(self, x):\n    return x",
        "def f(self, x):\n    return 1",
        "new.f(3)",
    ),
    "an attribute that is assigned twice": ("a = 1\na = 2", "b = 1\nb = 2\nc = b\nb = 3", "new.a, new.b, new.c"),
    "one argument for many": (
        "def f(self, x=3):\n    return super().f(x)",
        "def f(self, *a):\n    return a",
        "new.f()",
    ),
    "two arguments for many": (
        "def f(self, x=3, y=4):\n    return super().f(x, y)",
        "def f(self, *a):\n    return a",
        "new.f()",
    ),
    "many and one for many": (
        "def f(self, x=3, *y):\n    return super().f(x, *y)",
        "def f(self, *a):\n    return a",
        "new.f(1, 2)",
    ),
    "many for many of another name": (
        "def f(self, *y):\n    return super().f(*y)",
        "def f(self, *a):\n    return a",
        "new.f(1, 2)",
    ),
    "no argument for many": ("def f(self, *a):\n    return super().f()", "def f(self):\n    return 1", "new.f(1, 2)"),
    "keywords for many": (
        "def f(self, x=3, **k):\n    return super().f(y=x, **k)",
        "def f(self, **a):\n    return a",
        "new.f(z=2)",
    ),
    "one keyword for many": ("def f(self):\n    return super().f(y=1)", "def f(self, **a):\n    return a", "new.f()"),
    "a condition": ("a = 5", "if True:\n    a = 1\nelse:\n    a = 2", "new.a"),
    "an annotation without a value": ("x: float", "x: int = 8", "new.x"),
    "an annotation of a method": ("x: float", "def x(self):\n    return 1", "new.x()"),
    "an annotation of a property": ("x: float", "@property\ndef x(self):\n    return 1", "new.x"),
    "an annotation of a class": ("x: float", "class x:\n    y = 1", "new.x.y"),
    "an annotation of a name that a block binds": (
        "x: float",
        "with open('/dev/null') as x:\n    pass",
        "bool(new.x)",
    ),
    "a method that the parent binds twice": (
        "def x(self):\n    return 2",
        "def x(self):\n    return 1\nx = 3",
        "new.x()",
    ),
    "a method that a block of the parent binds again": (
        "@classmethod\ndef x(cls):\n    return 2",
        "@property\ndef x(self):\n    return 1\nif True:\n    x = 3",
        "new.x()",
    ),
    "an assignment repeated behind a change of its list": (
        "a = []\na.append(1)\na = []\na.append(2)",
        "a = 1",
        "new.a",
    ),
    "an assignment repeated behind a change of what it reads": ("b = 1\na = b\nb = 2\na = b", "c = 1", "new.a, new.b"),
    "an annotation below a value": ("y = 1", "x = 3\nx: int", "new.x"),
    "an annotation below two values": ("x2 = 1", "x = 3\nx: int = 4\nx: int", "new.x"),
    "an annotation below a value of the child": ("x = 3\nx: int", "x = 1", "new.x"),
    "two names, one of which the parent changes": ("a = b = 3", "a = 1\nb = []\nb.append(3)", "new.a, new.b"),
    "a method that the parent wraps": (
        "def x(self):\n    return 2",
        "def x(self):\n    return 1\nx = property(x)",
        "new.x()",
    ),
    "a method over an attribute": ("def x(self):\n    return 1", "x: int = 8", "new.x()"),
    "an attribute over a property": (
        "width = 3",
        "@property\ndef width(self):\n    return 1\n@width.setter\ndef width(self, value):\n    pass",
        "new.width",
    ),
    "registrations": (
        "def show(self, x):\n    return 'new'",
        "from functools import singledispatchmethod\n@singledispatchmethod\ndef show(self, x):\n    return 'old'\n"
        "@show.register\ndef _(self, x: int):\n    return 'int'\n@show.register\ndef _(self, x: str):\n    return 'str'",
        "new.show(1), new.show('')",
    ),
    "registrations of both": (
        "from functools import singledispatchmethod\n@singledispatchmethod\ndef show(self, x):\n    return 'new'\n"
        "@show.register\ndef _(self, x: int):\n    return 'int'\n@show.register\ndef _(self, x: list):\n    return 'list'",
        "from functools import singledispatchmethod\n@singledispatchmethod\ndef show(self, x):\n    return 'old'\n"
        "@show.register\ndef _(self, x: str) -> str:\n    'Doc.'\n    return 'str'",
        "new.show(1), new.show(''), new.show([]), new._.__doc__, new._.__annotations__",
    ),
    "an inner class": ("class Inner:\n    b = 2", "class Inner:\n    a = 1", "hasattr(new.Inner, 'a')"),
    "an attribute assigned twice in the child": ("a = 1\nb = a\na = 2", "a = 0", "new.a, new.b"),
    "a chain in a method": (
        "def f(self):\n    super().f()\n    self.a = 5",
        "def f(self):\n    self.a = self.b = 2",
        "new.f(), new.a, new.b",
    ),
    "two on a line of a method": (
        "def f(self):\n    super().f()\n    self.a = 5",
        "def f(self):\n    self.a = 1; self.b = 2",
        "new.f(), new.a, new.b",
    ),
    "a tuple in a method": (
        "def f(self):\n    super().f()\n    self.a = 5",
        "def f(self):\n    self.a, self.b = 1, 2",
        "new.f(), new.a, new.b",
    ),
    "two attributes by one assignment": (
        "def f(self):\n    super().f()\n    self.a = self.b = 5",
        "def f(self):\n    self.a = 1\n    self.b = 2",
        "new.f(), new.a, new.b",
    ),
    "an attribute that the parent counts up below": (
        "def f(self):\n    super().f()\n    self.a = 5",
        "def f(self):\n    self.a = 1\n    self.a += 2",
        "new.f(), new.a",
    ),
    "an attribute that the parent loops with below": (
        "def f(self):\n    super().f()\n    self.a = 5",
        "def f(self):\n    self.a = 1\n    for self.a in range(3):\n        pass",
        "new.f(), new.a",
    ),
    "an attribute in a tuple below": (
        "def f(self):\n    super().f()\n    self.a = 5",
        "def f(self):\n    self.a = 1\n    self.a, self.b = 1, 2",
        "new.f(), new.a, new.b",
    ),
    "a list that the parent extends below": (
        "def f(self):\n    super().f()\n    self.a = [5]",
        "def f(self):\n    self.a = [1]\n    self.a.append(2)",
        "new.f(), new.a",
    ),
    "an assignment repeated behind a change": (
        "def f(self):\n    super().f()\n    self.a = [1, 2]",
        "def f(self):\n    self.a = [1, 2]\n    del self.a[0]",
        "new.f(), new.a",
    ),
    "an override that reads a local name": (
        "def f(self):\n    super().f()\n    t = 3\n    self.a = t",
        "def f(self):\n    self.a = 1",
        "new.f(), new.a",
    ),
    "an override that reads a new attribute": (
        "def f(self):\n    super().f()\n    self.t = 3\n    self.a = self.t",
        "def f(self):\n    self.a = 1",
        "new.f(), new.a",
    ),
    "an override that reads its own target": (
        "def f(self):\n    super().f()\n    self.a = self.a * 2",
        "def f(self):\n    self.a = 4",
        "new.f(), new.a",
    ),
    "two overrides of one target": (
        "def f(self):\n    super().f()\n    self.a = 1\n    self.b = self.a\n    self.a = 2",
        "def f(self):\n    self.a = 4",
        "new.f(), new.a, new.b",
    ),
    "an attribute that is read before it is overridden": (
        "def f(self):\n    super().f()\n    self.w = self.a\n    self.a = 2",
        "def f(self):\n    self.a = 4",
        "new.f(), new.a, new.w",
    ),
    "an attribute deleted that the parent reads below": (
        "def f(self):\n    super().f()\n    del self.a",
        "def f(self):\n    self.a = 4\n    self.b = self.a",
        "new.f(), hasattr(new, 'a'), new.b",
    ),
    "an attribute deleted that the parent counts up below": (
        "def f(self):\n    super().f()\n    del self.a",
        "def f(self):\n    self.a = 4\n    self.a += 1",
        "new.f(), hasattr(new, 'a')",
    ),
    "an attribute deleted that a block of the parent sets again": (
        "def f(self):\n    super().f()\n    del self.a",
        "def f(self):\n    self.a = self.b = 4\n    try:\n        pass\n    finally:\n        self.a = 5",
        "new.f(), hasattr(new, 'a'), new.b",
    ),
    "an attribute deleted that a block of the parent may set": (
        "def f(self):\n    super().f()\n    del self.a",
        "def f(self):\n    self.a = 4\n    if self.a > 9:\n        self.a = 5",
        "new.f(), hasattr(new, 'a')",
    ),
    "an item deleted, then all of it": (
        "def f(self):\n    super().f()\n    del self.a[0]\n    self.a = [4]",
        "def f(self):\n    self.a = [1]",
        "new.f(), new.a",
    ),
    "an annotation alone": (
        "def f(self):\n    super().f()\n    self.a: int",
        "def f(self):\n    self.a = 1",
        "new.f(), new.a",
    ),
    "an item deleted": (
        "def f(self):\n    super().f()\n    del self.a[0]",
        "def f(self):\n    self.a = [1, 2]",
        "new.f(), new.a",
    ),
    "lines behind a return": (
        "def f(self, x):\n    super().f(x)\n    return x + 1",
        "def f(self, x):\n    self.x = x\n    return self.x * 2",
        "new.f(3), new.x",
    ),
    "lines behind a returned super call": (
        "def f(self, x):\n    return super().f(x)\n    return 0",
        "def f(self, x):\n    return x * 2",
        "new.f(3)",
    ),
    "another name of a parameter": (
        "def f(self, y):\n    return super().f(y)",
        "def f(self, x):\n    return x",
        "new.f(3)",
    ),
    "an argument that the child does not have": (
        "def f(self, x):\n    return super().f(x, scale=3)",
        "def f(self, x, scale=1):\n    return x * scale",
        "new.f(2)",
    ),
    "a default that the child does not have": (
        "def f(self, x):\n    return super().f(x)",
        "def f(self, x, scale=4, *more, **others):\n    return x * scale, more, others",
        "new.f(2)",
    ),
    "a function that takes a name from the same method": (
        "def f(self, x):\n    h = 1\n    def g(): return h + x\n    super().f(x)\n    h = 3\n    self.a = g()",
        "def f(self, x):\n    k = 5\n    self.g = lambda: k + x\n    k = 6",
        "new.f(3), new.a, new.g()",
    ),
    "a function below the parent's lines": (
        "def f(self, x):\n    super().f(x)\n    h = 1\n    g = lambda: h\n    self.a = g()",
        "def f(self, x):\n    for h in (1, 2):\n        self.b = h",
        "new.f(3), new.a, new.b",
    ),
    "a function with a parameter of that name": (
        "def f(self, x):\n    g = lambda x, *y, **z: (x, y, z)\n    def h(x): return x\n    super().f(x)\n    self.a = g(1), h(2)",
        "def f(self, x):\n    x = y = z = 5\n    self.b = x, y, z",
        "new.f(3), new.a, new.b",
    ),
    "a default of that name": (
        "def f(self, x):\n    g = lambda y=x: y\n    super().f(x)\n    self.a = g()",
        "def f(self, x):\n    x = 5\n    self.b = x",
        "new.f(3), new.a",
    ),
    "generators that are used up at once": (
        "def f(self, x):\n    self.a = sum(x + i for i in (1, 2)), [x for _ in (1, 2)], sorted((1, 2), key=lambda i: -i * x)\n"
        "    g = (i for i in (x, x))\n    super().f(x)\n    self.c = list(g)",
        "def f(self, x):\n    x = -5\n    self.b = x",
        "new.f(3), new.a, new.c",
    ),
    "an attribute that a function reads": (
        "def f(self, x):\n    self.a = 1\n    g = lambda: self.a\n    super().f(x)\n    self.c = g()",
        "def f(self, x):\n    self.a = x",
        "new.f(3), new.c",
    ),
    "the same assignment in another method of the parent": (
        "def f(self):\n    super().f()\n    self.a = 2\ndef g(self):\n    return super().g()",
        "def f(self):\n    self.a = 1\ndef g(self):\n    self.a = 2",
        "new.f(), new.g(), new.a",
    ),
    "a pattern that binds what it reads": (
        "def f(self, x):\n    super().f(x)\n    match x:\n        case [y]:\n            self.a = y",
        "def f(self, x):\n    self.a = 1",
        "new.f([3]), new.a",
    ),
    "another name of the instance": (
        "def f(this, x):\n    this.a = 1\n    return super().f(x)",
        "def f(self, x):\n    return self.a + x",
        "new.f(2)",
    ),
}
