"""From a trace to a plan: axes are followed through the operations, and chosen. Plain values, without torch."""
