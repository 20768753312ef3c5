class LlamaMLP:
    def llama_f(self):
        return 1
