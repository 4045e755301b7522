--- hardtanh: sample data.
return {
  gen = {x = {avoid = {-1, 1, 0.5}}}, calls = {{x = {3, 4}}, {x = {37}, min = -1, max = 0.5}},
  empty = {{x = {0, 3}}}, scalar = {{x = {}}}, large = {x = {100003}},
  expect = {{{x = {-3, 0, 2}}, {-1, 0, 1}}},
}
