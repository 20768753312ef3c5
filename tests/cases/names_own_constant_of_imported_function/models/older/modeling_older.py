OLDER_STEP = 2


def older_step(value):
    return value + OLDER_STEP
