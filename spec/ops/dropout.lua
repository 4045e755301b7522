--- dropout: sample data.
return {
  calls = {
    {x = {3, 4}}, {x = {37}, p = 0.1}, {x = {3, 4}, training = false}, {x = {3, 4}, p = 0}, {x = {3, 4}, p = 1},
  },
  empty = {{x = {0, 3}}}, scalar = {{x = {}}}, smooth = true,
  large = {x = {100003}}, expect = {{{x = {1, 2}, training = false}, {1, 2}}, {{x = {1, 2}, p = 1}, {0, 0}}},
}
