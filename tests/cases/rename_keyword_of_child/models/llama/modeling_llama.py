class LlamaMLP:
    def f(self, llama_x=1):
        return llama_x
