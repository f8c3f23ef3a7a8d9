"""The faults that `benchmarks.faults` puts into the code: what a hurried change could do, each in one place.

Each has the text as it is, the text with the fault, and the tests that answer for that code (``file -k words`` where a
file is long). After a change of the code write the text anew; a text that is nowhere is reported.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One text in the place of another."""

    name: str
    old: str
    new: str
    tests: tuple[str, ...]


def _of(group: str, *tests: str) -> _Group:
    return _Group(group, tests)


@dataclass(frozen=True)
class _Group:
    """Faults that the same tests answer for."""

    name: str
    tests: tuple[str, ...]

    def fault(self, name: str, old: str, new: str, *tests: str) -> Fault:
        return Fault(f"{self.name}: {name}", old, new, tests or self.tests)


_DOOR = _of("door", "tests/flare/site/test_door.py")
_HEALTH = _of("health", "tests/flare/operations/test_health.py")
_METRICS = _of("metrics", "tests/flare/operations/test_metrics.py")
_RENEWAL = _of("renewal", "tests/flare/kits/test_renewal.py")
_RENEWED = _of("renewed", "tests/flare/coordinator/test_renewed_certificates.py")
_DECISIONS = _of("decisions", "tests/flare/agreement/test_approvals.py", "tests/flare/agreement/test_journal.py")
_PAUSE = _of("pause", "tests/flare/site/test_pause.py")
_EXPORT = _of("export", "tests/flare/site/test_export.py")
_SITE_PAGES = _of("site pages", "tests/console/test_site_pages.py")
_GATE = _of("gate", "tests/site/test_gate.py", "tests/site/test_agent.py", "tests/core/test_federation.py")
_AGENT = _of("agent", "tests/site/test_agent.py", "tests/site/test_exposure.py")
_STATES = _of("states", "tests/site/test_states.py")
_INFORMED = _of("informed", "tests/consensus/test_informed.py")
_FAMILIAR = _of("familiar", "tests/consensus/test_familiar.py -k texts_are_compared")
_GUARD = _of("guard", "tests/algorithms/test_guard.py")
_VERDICT = _of("verdict", "tests/runs/test_verdict.py")
_FINDINGS = _of("findings", "tests/runs/test_findings.py")
_TESTED_TWICE = _of("tested twice", "tests/runs/test_tested_twice.py")
_ADVICE = _of("advice", "tests/consensus/test_advice.py")
_CSV = _of("csv", "tests/data/test_sources.py -k decimal")
_GRIDS = _of("grids", "tests/study/test_grid.py")
_SITE_FILES = _of("site files", "tests/study/test_site_files.py")
_SHARED = _of("shared", "tests/wire/test_frames.py", "tests/wire/test_orders.py", "tests/core/test_labels.py")
_EXPOSURE = _of("exposure", "tests/site/test_exposure.py")
_FAILURES = _of("failures", "tests/site/test_failures_are_answers.py", "tests/contracts/test_side_channels.py")
_LEDGER = _of("ledger", "tests/site/test_ledger.py", "tests/privacy/test_budget.py")
_POLICY = _of("policy", "tests/site/test_gate.py", "tests/site/test_exposure.py")
_NOISE = _of("noise", "tests/privacy/test_noise.py", "tests/contracts/test_mechanisms.py")
_BUDGET = _of("budget", "tests/privacy/test_budget.py")
_ACCOUNTANT = _of("accountant", "tests/privacy/test_claims.py", "tests/privacy/test_accountant.py")
_PATE = _of("teachers", "tests/algorithms/test_pate.py", "tests/algorithms/test_fedkt.py")
_FRAMES = _of("frames", "tests/wire/test_frames.py", "tests/site/test_agent.py")
_FLOODS = _of("floods", "tests/flare/site/test_floods.py", "tests/flare/site/test_public_store.py")
_PACKING = _of("label packing", "tests/wire/test_label_packing.py")
_BACKBONES = _of("backbones", "tests/learners/vision/test_backbones.py")
_FEATURES = _of("features", "tests/learners/vision/test_features.py", "tests/learners/vision/test_pictures.py")
_VISION = _of("vision", "tests/learners/vision/test_classifier.py")
_TABLES = _of("tables", "tests/wire/test_tables.py")
_LANGUAGE = _of("language models", "tests/learners/language/test_classifier.py")
_FOLDERS = _of("models' folders", "tests/learners/language/test_folders.py")
_XCLP = _of("xclp", "tests/algorithms/test_xclp.py", "tests/flare/test_algorithms.py -k left_out")
_PLAN = _of("plan", "tests/flare/agreement/test_planning.py", "tests/flare/agreement/test_plan.py")
_NETS = _of("nets", "tests/algorithms/test_fedavg.py", "tests/algorithms/test_feddf.py", "tests/core/test_workbench.py")
_START = _of("start", "tests/algorithms/test_starting.py")
_CHECKS = _of("checks", "tests/runs/test_checks.py", "tests/runs/test_runner.py")
_VOTES = _of("secret votes", "tests/secure/test_secret_votes.py")
_COUNTS = _of("secret counts", "tests/secure/test_secret_counts.py")
_NAMES = _of("naming", "tests/together/test_naming.py")
_PROCESSES = _of(
    "processes", "tests/flare/nvflare/test_guarded.py", "tests/flare/nvflare/test_streams.py",
    "tests/flare/supervise/test_connection.py", "tests/flare/supervise/test_dialling.py",
)  # fmt: skip
_BOUNDARY = _of(
    "boundary", "tests/wire/test_replies.py", "tests/wire/test_orders.py", "tests/core/test_hostile_replies.py",
    "tests/core/test_federation.py",
)  # fmt: skip
_STACKS = _of("stacks", "tests/learners/torch/test_together.py")
_LANES = _of("lanes", "tests/learners/torch/test_lanes.py")
_FEEDS = _of("feeds", "tests/learners/torch/test_feeding.py", "tests/learners/torch/test_hands.py")
_COHORTS = _of("cohorts", "tests/core/test_meeting.py", "tests/links/test_cohorts.py")
_COMPUTING = _of("computing", "tests/runs/test_computing.py")
_ORDER = _of("order of replies", "tests/contracts/test_algorithms.py -k answers_first")
_EVIDENCE = _of("evidence", "tests/reproduction/test_pieces.py")

FAULTS = (
    # Claims, plans, protocols and nets: the findings of two reviews.
    _PATE.fault(
        "a subset without rows loses its place",
        "subsets = [_plain(X, codes, rows) if len(rows) else None for rows in self._deal(X, fed)]",
        "subsets = [_plain(X, codes, rows) for rows in self._deal(X, fed) if len(rows)]",
        "tests/algorithms/test_pate.py -k one_record",
    ),
    _PATE.fault(
        "one teacher's draws move another's",
        "zip(subsets, rng.spawn(len(subsets)), strict=True)",
        "zip(subsets, [rng] * len(subsets), strict=True)",
        "tests/algorithms/test_pate.py -k one_record",
        "tests/algorithms/test_fedkt.py -k hash or record",
    ),
    _PATE.fault(
        "a teacher that fails says so",
        "        if not private:\n            raise\n",
        "        if True:\n            raise\n",
        "tests/algorithms/test_fedkt.py -k fails",
        "tests/algorithms/test_pate.py",
    ),
    _AGENT.fault(
        "a failure after a private fit is free",
        "if code not in _TOLD and self.site.exposure.owes:",
        "if False:",
    ),
    _FAILURES.fault(
        "failures have codes of their own", 'code if code in _TOLD else "step-failed", last.step', "code, step"
    ),
    _FAILURES.fault(
        "a failed step shows", "        release = self.gate.stand_in(last, self.site)\n", "        release = None\n"
    ),
    _FAILURES.fault(
        "an error in a private fit leaves the site",
        "            if self._simulation:\n                raise\n            self.log(",
        "            raise\n            self.log(",
    ),
    _FAILURES.fault(
        "a fit is charged when it is over",
        "        self.exposure.note_fit(charge)\n        try:\n            return use()\n",
        "        try:\n            done = use()\n            self.exposure.note_fit(charge)\n            return done\n",
        "tests/site/test_failures_are_answers.py",
    ),
    _of("sensitivity", "tests/site/test_promised_sensitivity.py").fault(
        "promises are believed", "if given.get(name, value) != value:", "if False:"
    ),
    _of("sensitivity", "tests/site/test_promised_sensitivity.py").fault(
        "the order's own is charged",
        "return build_mechanism(plain).for_step(declared), declared",
        "return build_mechanism(plain), declared",
    ),
    _of("sensitivity", "tests/site/test_promised_sensitivity.py").fault(
        "noise replaces the bill of a fit",
        "if noise is not None and (self.read or not self.fits):",
        "if noise is not None:",
    ),
    _of("sensitivity", "tests/site/test_promised_sensitivity.py").fault(
        "what is owed is forgotten", "return [noise, *self.unpaid]", "return [noise]"
    ),
    _of("sensitivity", "tests/flare/site/test_office.py").fault(
        "a plan may name other noise", "if not same_setting(planned.mechanism, noise_on(step, algorithm)):", "if False:"
    ),
    _DOOR.fault(
        "an old message counts again", '            caller.use(letter.head.get("number"))\n', "            pass\n"
    ),
    _DOOR.fault("anybody with a certificate is a lead", 'if lead.kind != "lead":', "if False:"),
    _DOOR.fault("any signature will do", "self._name or not letter.is_from(key):", "self._name:"),
    _DOOR.fault(
        "a run has many leads", "if known != lead:", "if False:", "tests/flare/coordinator/test_installations.py"
    ),
    _DOOR.fault(
        "who is revoked goes on",
        "        self._revoked.require_trusted(caller.lead)\n",
        "        pass\n",
    ),
    _DOOR.fault("anybody answers for a site", " and letter.is_from(identity)\n", "\n"),
    _HEALTH.fault("who stands still is well", "if still > STILL_SECONDS:", "if False:"),
    _HEALTH.fault("any supervisor's word counts", "told if is_held(_lock(kit), told.process) else None", "told"),
    _METRICS.fault("any name will do", "is_of_this_machine(host) and name.lower() not in _NAMES", "False"),
    _METRICS.fault(
        "old refusals are forgotten",
        'int(db.execute("SELECT COALESCE(MAX(id), 0) FROM refusal")',
        'int(db.execute("SELECT COUNT(*) FROM refusal")',
    ),
    _of("reporting", "tests/flare/coordinator/test_reporting.py").fault(
        "rows are counted again and again", "return rows[before : self._read[table]]", "return rows"
    ),
    _RENEWAL.fault("any name is certified", "    if name not in members:\n", "    if False:\n"),
    _RENEWAL.fault("another key's certificate is installed", "if new.public_key() != key.public_key():", "if False:"),
    _RENEWAL.fault("another member's certificate is installed", "if new.subject != old.subject:", "if False:"),
    _RENEWED.fault(
        "the old certificate is shown for ever", "            if stamp == self._stamp or", "            if True or"
    ),
    _RENEWED.fault("old words count after a renewal", "            self._forget_callers()\n", "            pass\n"),
    _of("turns", "tests/flare/site/test_turns.py").fault(
        "who comes last computes first", "return self._queue[0] is own and ", "return self._queue[-1] is own and "
    ),
    _of("installations", "tests/flare/coordinator/test_installations.py").fault(
        "an old turn is as good as the last", 'and found.turn in known["turns"]:', "and True:"
    ),
    _of("installations", "tests/flare/nvflare/test_callers.py").fault(
        "who was replaced may come back", "            return process in replaced\n", "            return False\n"
    ),
    _of("records", "tests/runs/test_record.py", "tests/flare/coordinator/test_bad_days.py").fault(
        "a lost record is a new run", "        known = self._read_head()\n", "        known = None\n"
    ),
    _of("exit codes", "tests/cli/test_studies.py", "tests/cli/test_coordinate.py").fault(
        "a study that lost sites is whole", "        raise typer.Exit(INCOMPLETE)\n", "        pass\n"
    ),
    _of("consent", "tests/flare/agreement/test_consent.py", "tests/cli/test_site.py").fault(
        "more than the method needs is not said", "        if step.most > found.most:\n", "        if False:\n"
    ),
    _of("consent", "tests/cli/test_site.py").fault(
        "a title is taken for markup", "Table(title=escape(title))", "Table(title=title)"
    ),
    _of("consent", "tests/cli/test_site.py").fault(
        "a plan with warnings is signed unread", "        if yes and found.warnings:\n", "        if False:\n"
    ),
    _of("plans", "tests/flare/site/test_office.py").fault(
        "any number of public rows will do", "if len(public) != plan.public_rows:", "if False:"
    ),
    _of("cleaning", "tests/flare/supervise/test_cleaning.py").fault(
        "a session that has a process is deleted",
        "if not any(path.name in command for command in commands)",
        "if True",
    ),
    _of("loading", "tests/flare/site/test_postponed.py").fault(
        "a stand-in is given to anybody",
        "if name in self.__taken and _asking().startswith(_INSIDE):",
        "if name in self.__taken:",
    ),
    _of("loading", "tests/flare/site/test_postponed.py").fault(
        "text comes in Arrow or not at all",
        "    except ImportError:  # pandas has no Arrow here",
        "    except KeyError:  #",
    ),
    _of("sites", "tests/flare/test_intruders.py -k no_port").fault(
        "a site opens a port", "        listen_to_nobody()\n", ""
    ),
    _of("counts", "tests/site/test_counted_records.py").fault(
        "the number of records is free",
        "        return len(self.data)  # which is noted as read\n",
        "        return self.size\n",
    ),
    _of("classes", "tests/site/test_class_presence.py", "tests/contracts/test_side_channels.py").fault(
        "an unknown class is refused", "            site = site.within(classes)\n", "            pass\n"
    ),
    _of("seeds", "tests/site/test_seeded_site.py").fault(
        "a real site may have seeded noise", "        require_secret_noise(site.name, site.learner)\n", ""
    ),
    _of("budget", "tests/site/test_renamed_site.py").fault(
        "a new name is a new budget",
        "self.ledger.charges(of_all=self.budget.ledger is not None)",
        "self.ledger.charges()",
    ),
    _of("budget", "tests/site/test_renamed_site.py", "tests/privacy/test_hindsight.py").fault(
        "votes change what is left",
        "[charge.as_known_beforehand() for charge in charges if charge.kind",
        "[charge for charge in charges if charge.kind",
    ),
    _of("budget", "tests/privacy/test_claims.py").fault(
        "units are not added up", "        counted = [charge.for_records() for charge in counted]\n", "        pass\n"
    ),
    _of("hindsight", "tests/privacy/test_hindsight.py", "tests/algorithms/test_pate.py").fault(
        "more is claimed than was known beforehand",
        "return min(known, replace(known, events=(event,)), key=_epsilon)",
        "return replace(known, events=(event,))",
    ),
    _of("hindsight", "tests/privacy/test_hindsight.py", "tests/algorithms/test_pate.py").fault(
        "a cost by the votes is published",
        "known = replace(beforehand, publishable=False, ",
        "known = replace(beforehand, ",
    ),
    _of("plan", "tests/flare/site/test_office.py", "tests/flare/agreement/test_planning.py").fault(
        "settings are not bound",
        "if not all(same_setting(request.args.get(name), fixed[name]) for name in fixed):",
        "if not all(name in request.args for name in fixed):",
    ),
    _PLAN.fault(
        "lists steps that are never asked for",
        "steps = {each.name: each for each in self.asks_for if each not in never}",
        "steps = {each.name: each for each in self.asks_for}",
        "tests/flare/agreement/test_planning.py",
        "tests/flare/agreement/test_plan.py",
    ),
    _PLAN.fault(
        "of XCLP leaves the backend open",
        '            talk.name: {"backend": self.hamming},\n',
        "",
        "tests/flare/site/test_office.py",
        "tests/flare/agreement/test_planning.py",
    ),
    _PLAN.fault(
        "of FedKT leaves the noise open",
        "return {learn.name: self._learn(public_size).args}",
        "return {}",
        "tests/flare/site/test_office.py",
        "tests/flare/agreement/test_planning.py",
    ),
    _XCLP.fault(
        "letters out of turn are delivered",
        "if turn == most or (turn and receiver not in heard[sender]):",
        "if turn == most:",
        "tests/algorithms/test_xclp.py -k stops_writing",
        "tests/secure/test_acquaintance.py",
        "tests/algorithms/test_xclp.py -k who",
    ),
    _XCLP.fault(
        "other columns are compared",
        'if None not in (said.get("names"), own["names"]) and said["names"] != own["names"]:',
        "if False:",
        "tests/flare/test_algorithms.py -k columns",
        "tests/algorithms/test_xclp.py -k columns",
    ),
    _XCLP.fault(
        "impossible neighbours are believed",
        "if not told[party].fits(bits, k)]",
        "if False]",
        "tests/algorithms/test_xclp.py -k neighbour",
    ),
    _XCLP.fault(
        "a run that is over leaves its secrets",
        "        self.site.secret_state.clear()\n",
        "",
        "tests/site/test_agent.py",
    ),
    _NETS.fault(
        "noise makes a variance negative",
        "np.maximum(value, np.float32(0)) if name",
        "value if name",
        "tests/algorithms/test_dp_fedavg.py -k negative",
    ),
    _NETS.fault(
        "a net that says no numbers teaches",
        "finite = bool(np.isfinite(logits).all())",
        "finite = True",
        "tests/algorithms/test_feddf.py -k no_numbers",
    ),
    _NETS.fault(
        "with other activations are averaged",
        "if shapes_of(net.get_weights()) != shapes_of(weights):\n            return False\n",
        "if shapes_of(net.get_weights()) == shapes_of(weights):\n            return True\n",
        "tests/algorithms/test_fedavg.py -k no_weights",
        "tests/core/test_workbench.py",
    ),
    _NETS.fault(
        "a round of diverged sites ends the run",
        "if fed.quorum > 0 or not (always or len(orders) < len(fed.parties)):",
        "if True:",
        "tests/algorithms/test_fedavg.py -k no_drawn_site",
        "tests/algorithms/test_dp_fedavg.py -k diverge",
    ),
    _START.fault("classes of another study", "        start.check_classes(fed.workbench.classes)\n", ""),
    _START.fault(
        "weights that are no numbers",
        "if not all(np.isfinite(value).all() for value in numbers.values()):",
        "if False:",
    ),
    _CHECKS.fault("gaps among words", " or bool(table.isna().any(axis=None))", ""),
    _CHECKS.fault("gaps in unlabeled rows", '{"X": site.X, "unlabeled": site.unlabeled}', '{"X": site.X}'),
    _CHECKS.fault(
        "a lost quorum without logs", "lost.logs = dict(live.logs)", "lost.logs = {}", "tests/runs/test_runner.py"
    ),
    # A site's own side.
    _GATE.fault("runs another version of a step", "if installed.digest != request.digest:", "if False:"),
    _GATE.fault(
        "answers about any public set",
        "if self.policy.public_sha256 is not None and request.public_sha256 != self.policy.public_sha256:",
        "if False:",
    ),
    _GATE.fault("lets out what is for simulations", "if checked.simulation_only and not self.simulation:", "if False:"),
    _GATE.fault("lets out another kind than declared", "if type(release) is not declared:", "if False:"),
    _GATE.fault(
        "spends without a budget",
        "        self.require_budget(charges or ())\n",
        "",
        "tests/site/test_gate.py",
        "tests/privacy/test_budget.py",
    ),
    _GATE.fault(
        "calls seeded noise secure",
        "return noisy, charge.assuming(SEEDED_NOISE) if site.noise.seeded else charge",
        "return noisy, charge",
        "tests/site/test_gate.py",
        "tests/privacy/test_tables.py",
    ),
    _GATE.fault(
        "forgets what a run has released",
        "if self.ledger.bytes_of(request.run) + packed.content_bytes > self.policy.max_run_bytes:",
        "if packed.content_bytes > self.policy.max_run_bytes:",
    ),
    _GATE.fault(
        "a budget lets out the unprotected",
        "strict=self.budget is not None)",
        "strict=False)",
        "tests/site/test_gate.py",
        "tests/site/test_exposure.py",
        "tests/privacy/test_budget.py",
    ),
    _AGENT.fault(
        "another order of the same number gets the old answer",
        "if done is not None and done.request != digest:",
        "if False:",
    ),
    _AGENT.fault(
        "publishes what depends on private data",
        "return [each if each.publishable else replace(each, events=()) for each in known]",
        "return list(charges)",
        "tests/site/test_agent.py",
        "tests/algorithms/test_fedkt.py -k dependent",
    ),
    _AGENT.fault(
        "pays though nothing was stored",
        "exposure, masks = self.site.exposure.copy(), last.mask",
        "exposure, masks = self.site.exposure, last.mask",
    ),
    _AGENT.fault(
        "goes on from a damaged state",
        "if hashlib.sha256(data).hexdigest() != sha256:",
        "if False:",
        "tests/site/test_agent.py",
        "tests/links/test_replay.py -k damaged",
    ),
    _SHARED.fault(
        "the same difference from other labels is taken for the same labels",
        "_READ[labels.n_classes, named, *header, content.tobytes()] = labels",
        "_READ[labels.n_classes, reference and reference.n_classes, *header, content.tobytes()] = labels",
    ),
    _SHARED.fault(
        "sites share what a step can change",
        "return requests if fixed else _own_copies(requests)",
        "return requests",
    ),
    _SHARED.fault(
        "an array in an order is changed for all sites",
        "return read_only(array) if self._frozen else array",
        "return array",
    ),
    _SHARED.fault(
        "a site that knows other labels gets what another read",
        "if read is not None and read[0] is orders and read[1] is latest:",
        "if read is not None and read[0] is orders:",
    ),
    _SHARED.fault(
        "labels can be changed for all sites",
        "    view.flags.writeable = False\n    return view\n\n\n@dataclass",
        "    return view\n\n\n@dataclass",
    ),
    _SHARED.fault(
        "rows of the last labels are taken for those of others",
        "if last is None or last[0] is not L:",
        "if last is None:",
    ),
    _LEDGER.fault(
        "a row that was taken back counts in the chain of a run",
        """            self._read()
            raise""",
        "            raise",
    ),
    _LEDGER.fault(
        "a row that was taken back stays in memory",
        "del self._kept[before:]",
        "pass",
    ),
    _STATES.fault(
        "answers from a state that lacks orders",
        "if self._lacking and header.last != self._lacking[0]:",
        "if False:",
    ),
    _STATES.fault(
        "forgets the orders since the stored state",
        "self._lacking.extend(self.gate.ledger.answered_after(run, number))",
        "pass",
    ),
    _STATES.fault(
        "keys are stored now and then",
        "if last.mask is not None or site.secret_state or site.exposure.fits:",
        "if last.mask is not None or site.exposure.fits:",
    ),
    _STATES.fault(
        "private fits are stored now and then",
        "if last.mask is not None or site.secret_state or site.exposure.fits:",
        "if last.mask is not None or site.secret_state:",
    ),
    _STATES.fault(
        "a site with a budget stores its state now and then",
        "seldom = pace if simulation and site.budget is None and",
        "seldom = pace if simulation and",
    ),
    _STATES.fault(
        "a real site stores its state now and then",
        "seldom = pace if simulation and",
        "seldom = pace if",
    ),
    _STATES.fault(
        "a run's end leaves its last orders to be done again",
        "self._replace_state(*self._unwritten)",
        "pass",
    ),
    _STATES.fault(
        "stores the half-done state of an order that failed this time",
        """            if isinstance(was, Reply):
                self._unwritten = None""",
        """            if isinstance(was, Reply):
                self._unwritten = (last.run, last.number)""",
    ),
    _STATES.fault(
        "the replay sends nothing again",
        "for _ in self._live.exchange(lacking, None) if lacking else ():",
        "for _ in ():",
    ),
    _AGENT.fault(
        "a step's error text leaves with the refusal",
        'raise Refused("step-failed", f"Step {request.step!r} raised; see the log.") from None',
        'raise Refused(f"step-failed {traceback.format_exc()}", "see the log.") from None',
    ),
    _EXPOSURE.fault(
        "pays for what protects nothing",
        "return bool(self.unpaid) and not self.read",
        "return True",
        "tests/site/test_agent.py",
        "tests/site/test_exposure.py",
    ),
    _EXPOSURE.fault(
        "rows that were read count as protected",
        "        if self.read:\n            return None\n",
        "",
        "tests/site/test_exposure.py",
    ),
    _of("side channels", "tests/auditing/test_side_channels.py", "tests/site/test_class_presence.py").fault(
        "rows that are left out do not count",
        "every if records is None else records",
        "len(site)",
    ),
    _of("side channels", "tests/flare/site/test_before_approval.py -k held_out").fault(
        "what never leaves is computed",
        "if installed.releases.never_protected:",
        "if False:",
    ),
    _of("coordinator", "tests/flare/coordinator/test_run_key.py -k record").fault(
        "the same noise on other answers",
        "        self._noise.depend_on(",
        "        (",
    ),
    _of("claims", "tests/privacy/test_claims.py").fault(
        "a record is a party",
        'if self.relation != "add_remove":',
        "if True:",
    ),
    _of("audit", "tests/auditing/test_audit.py -k nominal").fault(
        "what costs nothing is a claim",
        "for charge in charges or () if charge.events)).claims()",
        'for charge in charges or () if charge.kind != "nominal")).claims()',
    ),
    _EXPOSURE.fault("what was paid is paid again", "        self.unpaid = []\n", "        pass\n"),
    _LEDGER.fault("rows are not chained", "for column in _COLUMNS] + [prev] + (", "for column in _COLUMNS] + ("),
    _LEDGER.fault(
        "its hashes can be searched",
        "([] if salt is None else [salt])",
        "[]",
        "tests/site/test_searched_hash.py",
        "tests/site/test_ledger.py",
    ),
    _LEDGER.fault("the last rows may be cut off", "if (seq, digest) != head:", "if False:"),
    _LEDGER.fault(
        "a damaged ledger spends again",
        'if row["prev"] != digest or row["hash"] != row_hash(row, digest):',
        "if False:",
    ),
    _LEDGER.fault(
        "two runs read it at the same time",
        'storage_errors(self.path, LedgerError):\n            self._db.execute("BEGIN IMMEDIATE")',
        'storage_errors(self.path, LedgerError):\n            self._db.execute("BEGIN")',
        "tests/privacy/test_budget.py -k same_time",
        "tests/site/test_ledger.py",
    ),
    _LEDGER.fault("refusals fill the disk", "((added or 0) - KEPT_REFUSALS,)", "(0,)"),
    _POLICY.fault(
        "a star allows the unprotected",
        'for pattern in self.unprotected if not (strict and pattern == "*"))',
        "for pattern in self.unprotected)",
    ),
    # Privacy.
    _NOISE.fault("half of the Laplace noise", "self._signed(scale, n, 1.0,", "self._signed(scale // 2, n, 1.0,"),
    _NOISE.fault("may be infinite", ".astype(np.float64) + 0.5) * _UNIT)", ".astype(np.float64) + 1.0) * _UNIT)"),
    _NOISE.fault("without a grid", "np.asarray((np.rint(exact / grid)", "np.asarray((exact / grid"),
    _NOISE.fault(
        "zero counts twice", "accepted = (words <= last) & ((far > 0) | ~negative)", "accepted = words <= last"
    ),
    _NOISE.fault("rounding is free", "math.ceil(spread / grid * (1 + enlarged))", "math.ceil(spread / grid)"),
    _NOISE.fault(
        "a record with a gap stops a private fit",
        "block = np.clip(np.nan_to_num(self.block(rows), nan=0.0), -LARGEST, LARGEST)",
        "block = super().take(rows)",
        "tests/privacy/learners/test_sgd.py",
    ),
    _NOISE.fault(
        "a record that cannot be prepared stops a private fit",
        "CleanRows(row_by_row(self._prepared, X, 0 * like), self.image_shape)",
        "CleanRows(self._prepared(X), self.image_shape)",
        "tests/privacy/learners/test_sgd.py",
    ),
    _NOISE.fault(
        "a Paillier modulus is believed",
        "        paillier_proof.check(self._owner, key.N, roots)\n",
        "",
        "tests/protocols/hamming/test_paillier_proof.py",
    ),
    _NOISE.fault(
        "one base hides the randomness of a foreign modulus",
        "_BASES: Final = 20",
        "_BASES: Final = 1",
        "tests/protocols/hamming/test_paillier_proof.py",
    ),
    _NOISE.fault(
        "inconsistent transfers are answered",
        "of_columns ^ of_choices * self._base.choices[:, None]):",
        "of_columns ^ of_choices * self._base.choices[:, None]) and not self:",
        "tests/protocols/test_oblivious.py",
    ),
    _NOISE.fault("tails end", "count[more] += self._geometric(rate, len(more))", "pass"),
    _NOISE.fault(
        "labels are kept too often",
        "return 1 / (1 + (n_classes - 1) * math.exp(-self.per_label))",
        "return 1 / (1 + math.exp(-self.per_label))",
        "tests/privacy/mechanisms/test_randomized_response.py",
        "tests/contracts/test_mechanisms.py",
    ),
    _NOISE.fault(
        "a label that is not kept may be",
        "other = (codes + 1 + noise.below(n_classes - 1, len(codes))) % n_classes",
        "other = noise.below(n_classes, len(codes))",
        "tests/privacy/mechanisms/test_randomized_response.py",
        "tests/contracts/test_mechanisms.py",
    ),
    _NOISE.fault(
        "without the sensitivity",
        'spread = value if named == "scale" else sensitivity / value',
        'spread = value if named == "scale" else 1 / value',
        "tests/privacy/mechanisms/test_laplace.py",
        "tests/contracts/test_mechanisms.py",
    ),
    _BUDGET.fault(
        "forgets what was spent",
        "return self.covers(self.total([*spent, *more]))",
        "return self.covers(self.total(list(more)))",
    ),
    _BUDGET.fault("adds up different neighbours", "if len(relations) > 1:", "if False:"),
    _ACCOUNTANT.fault("counts noise once", "precision += count / multiplier**2", "precision += 1 / multiplier**2"),
    _ACCOUNTANT.fault(
        "claims the smallest delta",
        "delta = max(charge.delta for charge in charges) if delta is None else delta",
        "delta = min(charge.delta for charge in charges) if delta is None else delta",
    ),
    _ACCOUNTANT.fault(
        "one publishable charge is enough",
        "publishable=all(charge.publishable for charge in charges),",
        "publishable=any(charge.publishable for charge in charges),",
    ),
    _ACCOUNTANT.fault(
        "one party's many votes count once",
        "return min(bound, 2 * partitions * gamma * queries)",
        "return min(bound, 2 * gamma * queries)",
        "tests/privacy/test_pate.py",
    ),
    _ACCOUNTANT.fault(
        "noise does not grow with the sensitivity",
        "    return sensitivity / float(mu)\n",
        "    return 1 / float(mu)\n",
        "tests/privacy/test_accountant.py -k gaussian",
        "tests/privacy/test_theory.py",
        "tests/algorithms/test_certainty.py",
    ),
    _ACCOUNTANT.fault(
        "scores move by half",
        'return 2 / float(check(PositiveFloat, ridge, "sensitivity: ridge"))',
        'return 1 / float(check(PositiveFloat, ridge, "sensitivity: ridge"))',
        "tests/algorithms/test_certainty.py",
    ),
    _ACCOUNTANT.fault(
        "a replaced record moves one vote",
        '{"add_remove": 2.0, "replace": 4.0}',
        '{"add_remove": 2.0, "replace": 2.0}',
        "tests/privacy/learners/test_voting.py -k size or private_as",
    ),
    _ACCOUNTANT.fault(
        "zeros that are stored move a record",
        "    csr.sum_duplicates()\n    csr.eliminate_zeros()\n",
        "    csr.sum_duplicates()\n",
        "tests/privacy/learners/test_voting.py -k sparse or place or stored",
    ),
    # Bytes.
    _FRAMES.fault("of any size are read", "if size > self.contents:", "if False:"),
    _FRAMES.fault(
        "bytes after the end are ignored",
        "if end < len(data):",
        "if False:",
    ),
    _FRAMES.fault(
        "structures of any size are parsed", "if len(head) > self.head or values > self.values:", "if False:"
    ),
    _FRAMES.fault(
        "labels are made before they are paid for",
        "        self._free -= size\n",
        "",
    ),
    _FRAMES.fault("numbers of any length", "    if len(digits) > MAX_DIGITS:\n", "    if False:\n"),
    _FLOODS.fault(
        "public sets that no plan names",
        "if self._wanted.get(run) != sha256:\n                raise",
        "if False:\n                raise",
    ),
    _FLOODS.fault("public sets fill the disk", "            self._make_room(len(piece))\n", ""),
    _FLOODS.fault("a run that was ended is opened", "if (self._folder / run / RUN_ENDED).is_file():", "if False:"),
    _FLOODS.fault("an idle run stays awake", "if time.monotonic() - heard > self._idle:", "if False:"),
    _FLOODS.fault("a header before a long message", "if len(payload) > self._longest_payload(what):", "if False:"),
    _of("link", "tests/flare/coordinator/test_hostile_sites.py").fault(
        "a part that does not exist is sent", "if type(have) is not int or not 0 <= have <= len(data):", "if False:"
    ),
    _FRAMES.fault("cut short", "if len(data) < end:", "if False:"),
    _FRAMES.fault(
        "forget the latest labels",
        "        self._by_digest.move_to_end(labels.digest)\n",
        "",
        "tests/wire/test_frames.py",
    ),
    _FRAMES.fault(
        "labels against others than known",
        "if names and reference is None:",
        "if False:",
        "tests/wire/test_frames.py",
    ),
    _PACKING.fault(
        "a reference of another alphabet",
        " or _problem(reference, n_classes) or (s == n_classes and _abstains(reference)):",
        ":",
    ),
    _PACKING.fault(
        "a difference may be longer", "if content.size > _bytes(radix_size(reference.size, s)):", "if False:"
    ),
    _PACKING.fault("free labels without end", " or (s == 1 and n > _MAX_FREE):", ":"),
    _TABLES.fault("rows keep old labels", "return X.iloc[numbers].reset_index(drop=True)", "return X.iloc[numbers]"),
    # Between sites, and who comes first.
    _VOTES.fault(
        "a sum of two is opened",
        "            _require_company(mask.participants)\n",
        "",
        "tests/secure/test_secret_votes.py -k company",
    ),
    _VOTES.fault(
        "votes of another round are masked again",
        "if kept is None or kept.first != (mask.circle, mask.again):",
        "if kept is None:",
        "tests/secure/test_secret_votes.py -k another_round",
    ),
    _VOTES.fault(
        "opened votes are kept",
        "    if not faults:\n        site.secret_state.pop(_KEPT, None)\n",
        "",
        "tests/secure/test_secret_votes.py -k masked_again",
    ),
    _VOTES.fault(
        "of one model there are two sums",
        "if _SUMMED in site.state and site.state[_SUMMED] is site.model:",
        "if False:",
        "tests/secure/test_secret_votes.py -k one_sum",
    ),
    _VOTES.fault(
        "votes are masked again for other sites",
        "if not set(mask.participants) < kept.participants:",
        "if not set(mask.participants) - {site.name}:",
        "tests/secure/test_secret_votes.py -k fewer_sites",
    ),
    _COUNTS.fault(
        "noise for many sites goes to few",
        "if isinstance(release, NoisyCounts) and len(set(mask.participants)) < release.fewest:",
        "if False:",
    ),
    _COUNTS.fault(
        "counts leave without a mask", "        if bare.masked_only and mask is None:\n", "        if False:\n"
    ),
    _COUNTS.fault(
        "a site adds too little noise", "max(_LEAST_SIGMA, math.ceil(self._share * self.scale))", "_LEAST_SIGMA"
    ),
    _of("together", "tests/together/test_together.py -k changes").fault(
        "every pair is counted for free", 'len(args.get("marginals", "1"))', "1"
    ),
    _of("together", "tests/together/test_grids.py").fault(
        "values out of range are in no cell", 'side="right") - 1, 0, last)', 'side="right") - 1, -1, last)'
    ),
    _of("together", "tests/together/test_tree.py").fault(
        "what noise may hide is empty", "np.maximum(parts + beyond, 0.0)", "np.maximum(parts, 0.0)"
    ),
    _of("together", "tests/together/test_tree.py").fault(
        "a rare value vanishes with its cells", "_NEVER_NOTHING: Final = 1e-6", "_NEVER_NOTHING: Final = 0.0"
    ),
    _of("together", "tests/together/test_together.py -k texts").fault(
        "texts are counted as categories", "if len(columns) == 1 and columns[0].seeks_names:", "if False:"
    ),
    _NAMES.fault("values are named as soon as a bucket is full", "if least <= TABLES * cap:", "if least := -1280:"),
    _NAMES.fault("a record with many values is as safe as one with one", "/ 2)) / values", "/ 2))"),
    _NAMES.fault(
        "a row counts in a bucket for each of its values",
        "np.bincount(buckets[first], ",
        "np.bincount(buckets.ravel(), ",
    ),
    _NAMES.fault(
        "sites spell what they have as it is", "noise_source(rng).words(len(marked))[:, None]", "np.uint64(1)"
    ),
    _NAMES.fault("naming takes nothing of delta", "events=(*charge.events, named)", "events=charge.events"),
    _of("audit of the whole way", "tests/together/test_audit.py -k whole_way").fault(
        "what the public set cost is forgotten",
        "return _together(made, known._play(",
        "return _together(replace(made, charges=()), known._play(",
    ),
    _of("coordinator", "tests/flare/coordinator/test_run_key.py").fault(
        "noise follows from the seed",
        "            secret=secret,\n",
        "",
    ),
    _of("coordinator", "tests/flare/coordinator/test_run_key.py").fault(
        "calls seeded noise secure",
        "if self.noise.seeded else charge\n        self.observed",
        "if False else charge\n        self.observed",
    ),
    _of("approvals", "tests/flare/site/test_limits.py").fault(
        "a step has no limit",
        "over = [step for step in steps if counts[step] > most.get(step, 0)]",
        "over: list[str] = []",
    ),
    _of("approvals", "tests/flare/site/test_limits.py").fault(
        "an approval has no count",
        "if self.usage.plan_of(run) is None and not self.runs_left(approval):",
        "if False:",
    ),
    _of("approvals", "tests/flare/site/test_limits.py").fault(
        "an approval has no end",
        "return today() > self.until",
        "return False",
    ),
    _of("approvals", "tests/flare/site/test_before_approval.py").fault(
        "rows are looked at before approval",
        "_require(review(plan, self._setup.file))",
        "_require(review(plan, self._setup.file, self._setup))",
    ),
    _ORDER.fault(
        "weights are summed as they come",
        "replies.update((party, came[party]) for party in addressed if party in came)",
        "replies.update(came)",
        "tests/contracts/test_algorithms.py -k answers_first and (scaffold or pate)",
        "tests/algorithms/test_fedavg.py -k first",
    ),
    _BOUNDARY.fault(
        "a reply to another order is taken",
        "if reply.number not in ((number,) if isinstance(reply, Reply) else (number, UNREAD)):",
        "if reply.number < UNREAD:",
    ),
    _BOUNDARY.fault(
        "what a bad reply raises ends the run",
        "except Exception:  # whatever a site's bytes cause is that site's fault, and ends nobody else's run",
        "except WireError:",
    ),
    _BOUNDARY.fault(
        "a reply need not fit its hash",
        "if row is not None and hashlib.sha256(payload).hexdigest() != row.sha256:",
        "if row is None and hashlib.sha256(payload).hexdigest() != 0:",
    ),
    _BOUNDARY.fault(
        "orders of another number are read", "if requests[-1].number != header.last:", "if requests[-1].number < 0:"
    ),
    _BOUNDARY.fault(
        "an order of another run is carried out",
        "if request.run != self._run:",
        "if not request.run:",
        "tests/flare/site/test_office.py",
    ),
    _BOUNDARY.fault(
        "secrets outlive a run",
        "        self.site.secret_state.clear()\n",
        "",
        "tests/site/test_agent.py",
        "tests/flare/test_algorithms.py -k keeps_no_key",
    ),
    _PROCESSES.fault(
        "a job outlives its parent",
        "        follow_parent()\n        module = sys.argv.pop(1)\n",
        "        module = sys.argv.pop(1)\n",
    ),
    _PROCESSES.fault("an old connection's end is the new one's", " and closed.groups() == self._dialled:", ":"),
    _PROCESSES.fault(
        "a closed connection is a bad certificate", "    except ssl.SSLEOFError:\n        return _closed(kit)\n", ""
    ),
    _PROCESSES.fault("messages are remembered for ever", "while self._due[0][0] <= now:", "while False:"),
    _PROCESSES.fault("every message takes a megabyte", "if stream.get_size() > 0:", "if False:"),
    # Cohorts, and where and how precisely nets compute.
    _COHORTS.fault(
        "the first to come is the first net",
        "brought, self._brought = sorted(self._brought, key=lambda each: (each[0].party, each[0].order)), []",
        "brought, self._brought = list(self._brought), []",
    ),
    _COHORTS.fault(
        "orders are begun after the end",
        "            if self._closed:\n                future.cancel()\n",
        "",
        "tests/links/test_attendants.py",
    ),
    _COHORTS.fault(
        "an error waits for those who wait for a place",
        "enough = failed or len(self._came)",
        "enough = len(self._came)",
        "tests/links/test_attendants.py -k no_more_threads",
    ),
    _COHORTS.fault(
        "nobody waits for a run between its exchanges",
        "for _ in range(leaving - returns):",
        "for _ in range(leaving):",
        "tests/core/test_meeting.py",
    ),
    _COHORTS.fault(
        "rows that fill up a private sample count",
        "dp_training.clipped_shares(squares, max_grad_norm) * is_there",
        "dp_training.clipped_shares(squares, max_grad_norm)",
        "tests/privacy/learners/test_dp_together.py",
    ),
    _COHORTS.fault(
        "private fits of one cohort share noise",
        "each.noise.add_normal(own, each",
        "self._fits[0].noise.add_normal(own, each",
        "tests/privacy/learners/test_dp_together.py",
    ),
    _COHORTS.fault(
        "a sample that does not fit into memory is drawn again",
        "                return self._summed(drawn, at_once)\n            except torch.cuda.OutOfMemoryError:\n",
        "                return self._summed(drawn, at_once)\n            except torch.cuda.OutOfMemoryError:\n"
        "                drawn = [np.flatnonzero(e.noise.happens(0.4, len(e.data))) for e in self._fits]\n",
        "tests/privacy/learners/test_dp_together.py -k short_memory",
    ),
    _COHORTS.fault(
        "a site's log says in every round that it was trained alone",
        "if why is not None and self._told.get(party) != why:",
        "if why is not None:",
        "tests/links/test_cohorts.py -k says_why",
    ),
    _STACKS.fault(
        "nets in a cohort draw each other's random numbers",
        'randomness="error"',
        'randomness="different"',
        "tests/learners/torch/test_together.py -k draws",
    ),
    _STACKS.fault(
        "parts of a cohort on a CPU are mixed up",
        "                found[part::n] = late\n",
        "                found[part * len(late) : (part + 1) * len(late)] = late\n",
        "tests/learners/torch/test_together.py -k shared_out",
    ),
    _COHORTS.fault("predictions are counted as training", "if own.works[number].trains:", "if True:"),
    _COHORTS.fault(
        "sites with a deadline wait for each other",
        "if self._attendants is None or exchange.deadline is not None:",
        "if self._attendants is None:",
        "tests/links/test_cohorts.py",
    ),
    _COHORTS.fault(
        "a place for every site",
        "self._places = Places(self._size)",
        "self._places = Places(len(self.agents))",
        "tests/links/test_cohorts.py",
    ),
    _COHORTS.fault(
        "two runs on one core",
        "fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n    except OSError:\n        os.close(file)",
        "fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)\n    except OSError:\n        os.close(file)",
        "tests/core/test_one_core.py",
    ),
    _COHORTS.fault(
        "hashes wait for each other on one core",
        "with nullcontext() if self.core is None else self.core.left():",
        "with nullcontext():",
        "tests/core/test_one_core.py",
    ),
    _STACKS.fault(
        "one correction for all nets", "take_step(self.optimizer, even=self._stack.even)", "take_step(self.optimizer)"
    ),
    _COMPUTING.fault(
        "a pre-trained learner forgets",
        "made = copy.deepcopy(learner).set_params(",
        "made = type(learner)(**learner.get_params(deep=False)).set_params(",
    ),
    _COMPUTING.fault(
        "TF32 stays as the last net had it",
        "        products.allow_tf32, convolutions.allow_tf32, convolutions.deterministic = before\n",
        "        pass\n",
    ),
    _STACKS.fault(
        "rows that fill up a batch count",
        "        weights[k:] = 0\n",
        "        weights[k:] = 1\n",
    ),
    _STACKS.fault(
        "a batch that was filled up is averaged over all its rows",
        "weighted.mean() if count is None else weighted.sum() / count",
        "weighted.mean()",
    ),
    _STACKS.fault(
        "the first one's optimizer counts for itself alone",
        "                count.copy_(count[0].expand_as(count))\n",
        "                pass\n",
    ),
    _STACKS.fault(
        "nets of the same shape have the same layers",
        "        update.training.layers,\n        update.training.shapes,\n",
        "        update.training.shapes,\n",
    ),
    _STACKS.fault(
        "a net that is done is stored with the others",
        "            done = np.flatnonzero(lengths == step + 1)\n",
        "            done = np.flatnonzero((lengths == step + 1) | (step + 1 == lengths[0]))\n",
    ),
    _LANES.fault(
        "a net goes on with what the optimizer of the one before it kept",
        "            torch._foreach_zero_(fresh)\n",
        "            pass\n",
    ),
    _LANES.fault(
        "an optimizer forgets between two updates",
        "strict=True) if training.keeps(update.optimizer) else ():",
        "strict=True) if not training.keeps(update.optimizer) else ():",
    ),
    _LANES.fault(
        "weights go out of a place before the last step",
        "        return self._number == len(update.hands)\n",
        "        return self._number >= len(update.hands) - 1\n",
    ),
    _LANES.fault(
        "nets that hold numbers of their own are like others",
        "        _Form(net, written).dump(net)\n",
        "        _Form(net, written).dump(type(net))\n",
    ),
    _FEEDS.fault(
        "all nets have the first one's rows",
        'np.add(each.numbers[place], start, out=own[at], casting="same_kind")',
        'np.add(each.numbers[place], 0, out=own[at], casting="same_kind")',
    ),
    _FEEDS.fault(
        "all nets have the first one's labels of the same rows",
        "            return None\n    return list(first.values())",
        "            pass\n    return list(first.values())",
    ),
    _FEEDS.fault(
        "targets are those of the first net",
        "soft = soft[numbers[-1] + self._tables.to_targets[: shape.nets]]",
        "soft = soft[numbers[-1]]",
    ),
    _FEEDS.fault(
        "decks are dealt past a shuffle of two",
        "room = lefts[1] if len(lefts) > 1",
        "room = lefts[-1] if len(lefts) > 1",
    ),
    # What the authors' code does, and the tables of the papers.
    _EVIDENCE.fault(
        "the frequent class is dealt first",
        "    for part in sorted(by_class, key=len) if capped else by_class:\n",
        "    for part in by_class:\n",
        "tests/data/test_partition.py -k rarest",
    ),
    _EVIDENCE.fault(
        "ties go to the frequent class",
        "np.argsort(np.argsort(-counts.sum(axis=1), kind=",
        "np.argsort(np.argsort(counts.sum(axis=1), kind=",
        "tests/algorithms/test_fedkt.py -k ties",
    ),
    _EVIDENCE.fault(
        "a summed loss counts as private",
        '    separator = noisy_separator if loss == "mean" else summed_separator\n',
        "    separator = noisy_separator\n",
        "tests/algorithms/test_fedaux.py -k sum",
    ),
    _EVIDENCE.fault(
        "the coordinator's optimizer is new every round",
        "            kept = self._distiller if terms.keep_optimizer else None\n",
        "            kept = None\n",
        "tests/algorithms/test_fedaux.py -k live_on",
    ),
    _EVIDENCE.fault(
        "batch statistics change the running ones",
        "                value.copy_(own[name])\n",
        "                pass\n",
        "tests/learners/torch/test_classifier.py -k statistics_of",
    ),
    _EVIDENCE.fault(
        "a falling rate stays",
        "        schedule = schedule if terms.rate == 1 else replace(schedule, lr=terms.rate * schedule.lr)\n",
        "",
        "tests/algorithms/test_fedavg.py -k cosine",
    ),
    _EVIDENCE.fault(
        "every part of a run starts anew",
        '{} if needed is None else {"start": conditions.weights(needed)}',
        "{}",
    ),
    _EVIDENCE.fault(
        "what is through is run again",
        "        waiting = [unit for unit in every if not self._is_done(unit)]\n",
        "        waiting = every\n",
    ),
    _EVIDENCE.fault(
        "a run begins that cannot end in time",
        "        return time.time() + expected <= deadline\n",
        "        return time.time() <= deadline\n",
    ),
    _EVIDENCE.fault(
        "every training has a split of its own",
        "study = table.study_of(unit.row, unit.column, unit.split, quick=conditions.quick)\n    prepared",
        "study = table.study_of(unit.row, unit.column, unit.seed, quick=conditions.quick)\n    prepared",
        "tests/reproduction/test_plan.py -k training",
    ),
    _EVIDENCE.fault(
        "a GPU's time is taken for a CPU's",
        "            and device in (None, _kind(found))\n",
        "",
        "tests/reproduction/test_plan.py -k device",
    ),
    _EVIDENCE.fault(
        "what another process added is lost",
        "self._found = self._read() | new",
        "self._found |= new",
        "tests/reproduction/test_plan.py -k processes",
    ),
    _INFORMED.fault(
        "a class that a site has never seen counts as known",
        "return np.where(unknown & counts.any(), said, rows)",
        "return rows",
    ),
    _INFORMED.fault(
        "a site that abstains is believed for it",
        "said = of_all / of_all.sum(axis=1, keepdims=True)",
        "said = of_all",
    ),
    _INFORMED.fault(
        "what a record changes in the blocks is understated",
        "@step(sensitivity=Sensitivity(l1=_CHANGE",
        "@step(sensitivity=Sensitivity(l1=_CHANGE / 2",
    ),
    _INFORMED.fault(
        "counts outweigh votes where sites abstain",
        "if (votes < 0).any():",
        "if (votes < -1).any():",
    ),
    _GUARD.fault(
        "whatever is not worse is taken",
        "if gain > max(best, _CLEAR * error):",
        "if gain >= -1:",
    ),
    _GUARD.fault(
        "unseen classes give no credit",
        "gain, error = gains.sum() + beyond,",
        "gain, error = gains.sum(),",
    ),
    _GUARD.fault(
        "a net goes on from the model with the consensus",
        "        site.model = site.state.get(_ALONE)\n",
        "",
    ),
    _VERDICT.fault(
        "the rows are not paired",
        "low, high = interval(together[site].astype(int) - alone[site],",
        "low, high = interval(together[site].astype(int) - np.sort(alone[site]),",
    ),
    _FINDINGS.fault(
        "labels are compared as they are written",
        'return " ".join(str(value).split()).casefold()',
        "return str(value)",
    ),
    _GRIDS.fault("a run that is through runs again", "    return run if run.finished else None\n", "    return None\n"),
    _GRIDS.fault(
        "data that has changed is mixed in",
        "if changed := [name for name in data if before.get(name, data[name]) != data[name]]:",
        "if changed := []:",
    ),
    _SITE_FILES.fault(
        "columns stay in the order of their file",
        "    return X[list(first.columns)] if set(first.columns) == set(X.columns) else X\n",
        "    return X\n",
    ),
    _LANGUAGE.fault(
        "frozen weights are sent and stored",
        "return {name: value for name, value in state.items() if name in self._learned}",
        "return dict(state)",
    ),
    _LANGUAGE.fault(
        "a text's features depend on the texts beside it",
        "            filled = torch.cat([batch, batch[:1].expand(short, -1)]) if short else batch\n",
        "            filled = batch\n",
    ),
    _LANGUAGE.fault(
        "what fills up a row is read",
        "attention_mask=there.long()).last_hidden_state.float()",
        "attention_mask=torch.ones_like(ids)).last_hidden_state.float()",
    ),
    _LANGUAGE.fault(
        "features of another length are taken from the folder",
        'name = f"{model.found.sha256} {pooling} {length} {device.type} {precision}"',
        'name = f"{model.found.sha256} {pooling} {device.type} {precision}"',
        "tests/learners/language/test_classifier.py -k kept_for_other_processes",
    ),
    _FAMILIAR.fault(
        "no text is like another",
        "    texts = [place for place in range(U.shape[1]) if tables.holds_texts(U.iloc[:, place])]\n",
        "    texts: list[int] = []\n",
    ),
    _FOLDERS.fault("a pickle is taken for no weights at all", "        if pickles:\n", "        if not pickles:\n"),
    _FOLDERS.fault(
        "another file passes under a known name",
        "if not (place / name).is_file() or sha256_of(place / name) != expected:",
        "if not (place / name).is_file():",
    ),
    _FOLDERS.fault("code in a folder is run", '"trust_remote_code": False}', '"trust_remote_code": True}'),
    _FOLDERS.fault("it downloads unasked", "local_files_only=not download)", "local_files_only=False)"),
    _TABLES.fault(
        "texts may run into each other",
        "if [0, *ends] != sorted([0, *ends]) or (ends[-1] if ends else 0) != len(whole):",
        "if False:",
    ),
    _DECISIONS.fault(
        "an approval goes before a denial",
        "return approval is not None and self.denial(digest) is None and self.runs_left(approval) > 0",
        "return approval is not None and self.runs_left(approval) > 0",
    ),
    _DECISIONS.fault(
        "a denial passes for an approval",
        "    return bind(purpose, hashlib.sha256(canonical.encode()).digest())",
        '    return bind("", hashlib.sha256(canonical.encode()).digest())',
    ),
    _DECISIONS.fault(
        "the reason always goes to the coordinator",
        'raise PlanDenied(plan.digest, denial.reason if denial.told else "")',
        "raise PlanDenied(plan.digest, denial.reason)",
    ),
    _DECISIONS.fault("the journal is not chained", "if not signed or not chained or", "if not signed or"),
    _PAUSE.fault(
        "what was made before the pause leaves in it",
        "            require_not_paused(self._folder)  # what a step made meanwhile",
        "            # what a step made meanwhile",
    ),
    _PAUSE.fault(
        "an order that waited begins in the pause",
        "            require_not_paused(self._folder)  # perhaps since it was given\n",
        "",
    ),
    _EXPORT.fault(
        "what follows the signature is not signed",
        "return bind(_PURPOSE, hashlib.sha256(bind(before, after)).digest())",
        "return bind(_PURPOSE, hashlib.sha256(before).digest())",
    ),
    _EXPORT.fault("a cell may be a formula", """return f"'{shown}" if is_text else shown""", "return shown"),
    _SITE_PAGES.fault(
        "an approval is for whatever plan is there now",
        'if found is None or (fields.get("plan"), fields.get("seen")) != (digest, found.seen):',
        "if found is None:",
    ),
    _BACKBONES.fault(
        "a pickle may run code", 'map_location="cpu", weights_only=True', 'map_location="cpu", weights_only=False'
    ),
    _BACKBONES.fault(
        "any file is the pinned one",
        '        if found != sha256:\n            raise ConfigError(\n                f"{file} is not',
        '        if not found:\n            raise ConfigError(\n                f"{file} is not',
    ),
    _BACKBONES.fault(
        "missing weights stay random",
        'named.check({name: value.numpy() for name, value in given.items()}, wanted, f"The weights in {where}")',
        "given = {name: given[name] for name in given if name in wanted}",
    ),
    _BACKBONES.fault("a coordinator names a site's folder", 'value.startswith(("/", "~"))', "value.startswith(())"),
    _FEATURES.fault("bytes are taken for numbers", "return values / np.float32(_BYTE)", "return values"),
    _FEATURES.fault(
        "a changed array keeps its features",
        "fixed = type(given) is np.ndarray and not given.flags.writeable",
        "fixed = True",
    ),
    _FEATURES.fault(
        "images are told apart by their first pixel",
        "digest.update(pictures.raw(row))",
        "digest.update(pictures.raw(row)[:4])",
    ),
    _FEATURES.fault(
        "channels last are taken for first",
        "return values.transpose(0, 3, 1, 2)",
        "return values.reshape(len(values), values.shape[3], *values.shape[1:3])",
    ),
    _VISION.fault(
        "heads on another backbone fit",
        "nn.Sequential(OrderedDict([(backbone.reference, super()._new_net(input_shape, n_classes))]))",
        'nn.Sequential(OrderedDict([("head", super()._new_net(input_shape, n_classes))]))',
    ),
    _VISION.fault(
        "another backbone takes the place of the old",
        "        if known != found.reference:\n",
        "        if not known:\n",
    ),
    _VISION.fault(
        "features of two nets are compared", "    if embed and site.backbone is not None:\n", "    if False:\n"
    ),
    _VISION.fault(
        "fine-tuning trains everybody's backbone",
        "layers = copy.deepcopy(self.layers).requires_grad_(True)",
        "layers = self.layers.requires_grad_(True)",
    ),
    _FINDINGS.fault(
        "another spelling is a missing class",
        "missing, few = [v for v in every if plain_spelling(v) not in there]",
        "missing, few = [v for v in every if v not in own]",
    ),
    _FINDINGS.fault(
        "ages are classes",
        "if look_like_counts(labels) and len(labels) < _ROWS_PER_VALUE * len(values):",
        "if look_like_counts(labels) and len(labels) < len(values):",
    ),
    _TESTED_TWICE.fault(
        "a second test in a round is a second row", '            row["value"] = float(value)\n            return\n', ""
    ),
    _ADVICE.fault(
        "a chosen majority passes for none",
        "elif better is not None and rule is UNCHOSEN",
        "elif better is not None and rule == UNCHOSEN",
    ),
    _ADVICE.fault(
        "different learners are no reason",
        "elif safe is not None and len({_kind(site.learner) for site in sites}) > 1:",
        "elif safe is not None and not sites:",
    ),
    _VERDICT.fault(
        "a notebook does not say who lost",
        'color = "#b00020" if row["high"] < 0',
        'color = "inherit" if row["high"] < 0',
    ),
    _CSV.fault("decimal commas make words", '"decimal": "," if by_comma > by_point else "."', '"decimal": "."'),
)
