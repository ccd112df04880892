"""Explanations for people: a sentence, a row of numbers, a page, a picture, a trace."""
