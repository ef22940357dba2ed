"""What several official sets share: file layouts, and how their images are prepared."""
