

def test_many_points_are_summed_up_by_scipy_to_the_same_bits(monkeypatch):
    losses = randomized_response_losses(1000, 0.01)
    few = losses.epsilon(1e-5)
    monkeypatch.setattr("collegium.privacy.losses._FEW_POINTS", 0)
    assert losses.epsilon(1e-5) == few > 0
