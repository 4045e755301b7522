--- nll_loss: sample data.
local labels = {shape = {4}, below = 3}

return {
  gen = {x = {range = {-3, -0.1}}, weight = {range = {0.5, 2}}},
  calls = {
    {x = {4, 3}, target = labels}, {x = {4, 3}, target = labels, weight = {3}},
    {x = {4, 3}, target = labels, reduction = "sum", ignore_index = 2},
    {x = {2, 3, 4}, target = {shape = {2, 4}, below = 3}, reduction = "none"},
    {x = {3}, target = {shape = {}, below = 3}},
  },
  empty = {{x = {0, 3}, target = {shape = {0}, below = 3}, reduction = "sum"}}, grads = {"x"}, smooth = true,
  magnitude = 10,
  large = {x = {317, 317}, target = {shape = {317}, below = 317}},
  expect = {{{x = {{-1, -2}, {-3, -4}}, target = {2, 1}}, 2.5}},
}
