OLDER_STEP = 3


def older_step(value):
    return value + OLDER_STEP


class OlderNorm:
    def forward(self, value):
        return older_step(value)
