"""Readers of the user's own data: arrays, tables, folders of images, files."""
