"""The stop rules as they were before any profile judged findings, to the letter.

`strict` and `yolo` must stop exactly where these stop. Nobody changes these files.
"""
