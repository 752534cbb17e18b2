"""What the demo asks. Written for this project, like the questions that the pair learned from."""

SHOWN = "Write a function that does this: Return the longest word of a text."
"""The prompt whose answer is printed at the end."""

PROMPTS = (
    SHOWN,
    "Write a Python function named read_lines.",
    "Write save.",
    "Write a function that does this: Remove the oldest entry of the cache.",
    "Write __repr__.",
    "I need Python code for this. Send a message to every client.",
    "Please write a function called get_path.",
    "Give me an example of a function: parse_header.",
    "Write a function that does this: Open the file and return its lines.",
    "Write test_copy.",
    "How is __enter__ written in Python?",
    "What does urlopen do?",
    "Write a Python function named count_words.",
)
