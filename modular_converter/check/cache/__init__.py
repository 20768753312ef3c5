"""Conversions that earlier checks have made, and whether they still hold."""
