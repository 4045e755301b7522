--- bce_with_logits: sample data.
return {
  gen = {target = {range = {0.1, 0.9}}, weight = {range = {0.5, 2}}},
  calls = {
    {x = {3, 4}, target = {3, 4}}, {x = {3, 4}, target = {3, 4}, weight = {3, 4}, reduction = "sum"},
    {x = {37}, target = {37}, reduction = "none"},
  },
  empty = {{x = {0, 3}, target = {0, 3}, reduction = "sum"}}, scalar = {{x = {}, target = {}}}, smooth = true,
  magnitude = 10,
  large = {x = {317, 317}, target = {317, 317}},
  expect = {{{x = {0, 0}, target = {0, 1}}, 0.6931471805599453}, {{x = {1000}, target = {1}}, 0}},
}
