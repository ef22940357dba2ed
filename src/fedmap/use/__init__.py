"""Models in use, after their run: read from files, asked, exported, described and adapted. Nothing
here needs the data that they were trained on."""
