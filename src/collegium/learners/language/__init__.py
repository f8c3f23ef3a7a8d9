"""Language models as learners: any Hugging Face folder, its tokenizer, and what is trained of it.

From top to bottom: `classifier` is what users see; `net` a language model with a head, and `features` what a frozen one
makes of texts; `texts_net` trains nets on texts, and `reading` turns texts into token ids; `pretrained` is a folder's
model in memory; `folders` and `known` find the folder and check what is in it. `next_word` pre-trains on texts without
labels.
"""
