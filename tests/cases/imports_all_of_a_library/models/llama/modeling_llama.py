from math import *
from typing import *


class LlamaMLP:
    def forward(self, x: Optional[int]) -> Dict[str, int]:
        return floor(x)


class LlamaNorm:
    def forward(self, x):
        return x
