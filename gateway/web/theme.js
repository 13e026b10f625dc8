// Dark or light before the first paint: a classic script in <head>, so the page never flashes.
// Owns <html data-theme>, taken from the reader's choice ("system", "light" or "dark") and the
// system's preference; the rest of the page uses it as window.troupeTheme.
(() => {
    const storageKey = "troupe.theme";
    const system = matchMedia("(prefers-color-scheme: dark)");

    function read() {
        try {
            return localStorage.getItem(storageKey) ?? "system";
        } catch {
            return "system";
        }
    }

    let choice = read();

    function shown() {
        if (choice === "light" || choice === "dark") return choice;
        return system.matches ? "dark" : "light";
    }

    function apply() {
        document.documentElement.dataset.theme = shown();
        document.dispatchEvent(new CustomEvent("troupe-theme"));
    }

    function choose(next) {
        choice = next;
        try {
            localStorage.setItem(storageKey, next);
        } catch {
            // Without storage the choice lasts until the page is closed.
        }
        apply();
    }

    system.addEventListener("change", apply);
    apply();
    window.troupeTheme = {
        choose,
        choice: () => choice,
        shown,
        toggle: () => choose(shown() === "dark" ? "light" : "dark"),
    };
})();
