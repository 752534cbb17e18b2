"""The comparison that ``sglang-specv2 bench`` runs: servers, load, measures, tables, pictures.

::

    settings    what was asked for, checked         workloads      prompts: texts or random ids
    arms        the servers that are compared       load           how requests arrive
    pairs       the models that they serve          client         one streamed request, timed
    stations    arm and model: a command            driver         closed loop, Poisson, joins
    server      one arm's server, start to stop     sglang_client  SGLang's bench_serving instead
    session     one call of the command             measure        a round between two readings
    runner      what is measured when; failures     timeline       a ramp as time goes by
    results     the result folder                   recovery       acceptance after an off period
    provenance  where numbers come from             statistics     ratios and their intervals
    tables      figures by arm and level            report, figures, display
"""
