--- log_softmax: sample data.
return {
  calls = {{x = {3, 4}}, {x = {3, 4}, dim = 1}, {x = {2, 3, 4}, dim = 2}, {x = {37}}},
  empty = {{x = {0, 3}}, {x = {3, 0}}}, scalar = {{x = {}}}, smooth = true, magnitude = 5,
  special = {{x = {5, 4}}, {x = {5, 4}, dim = 1}}, large = {x = {317, 317}},
  expect = {{{x = {0, 0}}, {-0.6931471805599453, -0.6931471805599453}}},
}
