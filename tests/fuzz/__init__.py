"""Hundreds of thousands of broken inputs. Each run has a seed and can be repeated."""
