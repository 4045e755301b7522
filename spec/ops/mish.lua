--- mish: sample data.
return {
  calls = {{x = {3, 4}}, {x = {37}}}, empty = {{x = {0, 3}}}, scalar = {{x = {}}}, smooth = true,
  large = {x = {100003}}, expect = {{{x = {0, 1}}, {0, 0.8650983882673103}}},
}
