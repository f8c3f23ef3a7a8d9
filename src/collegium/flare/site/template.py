"""The site file that `collegium site init` writes: every setting, with what it means, for its owner to fill in."""

from __future__ import annotations

from typing import Final

TEMPLATE: Final = """\
# This site in the federation. The file stays here; the coordinator never sees it.
name = "{name}"
prepare = "auto"                  # encode categories, fill gaps, scale where the learner needs it; or "none"

[data]                            # one of: source; database and query; entry_point
source = "patients.csv"           # CSV, Parquet or npz; a relative path starts at this folder
target = "diagnosis"              # the column with the labels
# database = "${{HOSPITAL_DB}}"     # SQLAlchemy's address, from the environment to keep passwords out of this file
# query = "SELECT age, crp, diagnosis FROM cases"
# entry_point = "cases"           # a function installed here, of the entry-point group collegium.site_data
# columns = ["age", "crp"]        # the features to use, in this order
held_out = 0.2                    # share of the rows that no model learns from, to measure with
# unlabeled = "unread.csv"        # rows without labels, for methods that use them

[learner]                         # collegium list learners
name = "random_forest"

[policy]
algorithms = ["*"]                # such as ["fedct", "fedkt"]
steps = ["*"]                     # such as ["fedct.*"]
unprotected = ["*"]               # kinds of release that may leave without differential privacy
# requires = "dp"                 # nothing leaves without differential privacy, except kinds that `unprotected` names
max_release_bytes = 1073741824
max_run_bytes = 68719476736
max_message_bytes = 1073741824
# public_sha256 = ""              # the only public set that this site answers questions about
approval = "plan"                 # "plan": you sign each plan; "each": you sign each order; "auto": the policy decides

# [budget]                        # all the privacy that this site may ever spend
# epsilon = 4.0
# delta = 1e-5

[public]
# path = "public.csv"             # your own copy of the public set; without it, the coordinator sends it
# target = "label"                # a column of that copy that is not a feature
max_bytes = 1073741824             # the largest set that is fetched; all together take at most four times as much

[runs]
idle_minutes = 60                 # a run that was not heard of for so long sleeps on disk until the next order
# at_once = 1                     # so many runs compute at the same time; orders of others wait for their turn

[notify]                          # who is told that a plan or an order waits for approval
# command = ["./tell-me.sh"]      # gets one JSON object on its standard input
# mail = "data-protection@hospital.org"
# smtp = "localhost:25"           # a mail server that needs no password
# sender = "collegium@hospital.org"

[metrics]                         # for Prometheus; without a port there is no endpoint
# port = 9464                     # whoever can reach it can read it: how much left and was spent, no rows
# host = "127.0.0.1"

[identities]                      # of the other sites, by telephone or letter: never from the coordinator
# other-hospital = "64 hexadecimal digits, as its `collegium site init` shows"
"""
