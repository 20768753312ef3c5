class MyPreTrainedModel:
    pass
