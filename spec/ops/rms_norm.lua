--- rms_norm: sample data.
return {
  calls = {
    {x = {3, 4}, shape = {4}}, {x = {3, 4}, shape = {4}, weight = {4}},
    {x = {2, 3, 4}, shape = {3, 4}, weight = {3, 4}, eps = 0.1},
  },
  empty = {{x = {0, 4}, shape = {4}, weight = {4}}}, smooth = true, ulps = 16,
  large = {x = {317, 317}, shape = {317}, weight = {317}},
  expect = {{{x = {{3, 4}}, shape = {2}, eps = 0}, {{0.848528137423857, 1.131370849898476}}}},
}
