--- cumprod: sample data.
return {
  gen = {x = {range = {0.5, 1.5}, ints = {1, 2}}},
  calls = {{x = {3, 4}, dim = 1}, {x = {3, 4}, dim = -1}, {x = {2, 3, 4}, dim = 2}},
  empty = {{x = {0, 3}, dim = 1}, {x = {0, 3}, dim = 2}}, scalar = {{x = {}, dim = 1}}, smooth = true,
  ulps = 32,
  large = {x = {shape = {317, 317}, range = {0.99, 1.01}}, dim = 2},
  expect = {{{x = {1, 2, 3}, dim = 1}, {1, 2, 6}}},
}
