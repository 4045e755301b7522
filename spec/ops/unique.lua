--- unique: sample data.
return {
  gen = {x = {ints = {0, 4}}}, calls = {{x = {3, 4}}, {x = {37}}}, empty = {{x = {0, 3}}}, scalar = {{x = {}}},
  large = {x = {100003}},
  expect = {{{x = {3, 1, 3}}, {1, 3}, {2, 1, 2}, {1, 2}}},
}
