"""transformers' ``Trainer`` for parallelized models, and its search for hyper-parameters on several processes."""
