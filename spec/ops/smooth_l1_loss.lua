--- smooth_l1_loss: sample data.
return {
  calls = {
    {x = {3, 4}, target = {3, 4}}, {x = {3, 4}, target = {3, 4}, reduction = "sum", beta = 0.5},
    {x = {37}, target = {37}, reduction = "none"},
  },
  empty = {{x = {0, 3}, target = {0, 3}, reduction = "sum"}}, scalar = {{x = {}, target = {}}}, magnitude = 20,
  large = {x = {317, 317}, target = {317, 317}},
  expect = {{{x = {1, 2}, target = {3, 1.5}}, (1.5 + 0.125) / 2}},
}
