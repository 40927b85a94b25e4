/* Keeps a page fresh: each element with data-pgqueue-live="name" is replaced by the one of that name from the same
 * address, fetched every few seconds. The toolbar of live.html says how often; the choice is kept in this browser.
 *
 * Nothing is fetched while the tab is hidden or the user is at work in what would be replaced: text selected, boxes ticked,
 * a field changed or under the cursor, the pointer pressed. Folds, focus and scroll positions survive; a fold
 * is known again by its id, else by the text of its summary. What has not changed is left alone.
 *
 * A row that has left its list is struck out, and a link offers those that are new: nothing moves under the pointer.
 *
 * After a swap "pgqueue:live" is dispatched on the document, with the names in detail.names.
 */
(function () {
    "use strict";

    const KEY = "pgqueue.live";
    const PATIENCE = 20000; // ms without an answer
    const LONGEST_PAUSE = 60000; // ms between tries while there is none
    const FIELDS = "input:not([type=hidden]), select, textarea";

    const toolbar = document.getElementById("pgqueue-live");
    if (!toolbar || toolbar.dataset.ready || !regions(document).length) {
        return;
    }
    toolbar.dataset.ready = "yes";
    const choice = toolbar.querySelector("select");
    const more = toolbar.querySelector(".pgqueue-live-more");
    const told = toolbar.querySelector("[role=status]");
    const shown = new Map(regions(document).map((region) => [nameOf(region), textOf(region)]));
    let timer = null;
    let failures = 0;
    let isStopped = false;
    let isFetching = false;
    let isPressed = false;

    choice.value = remembered() || choice.value;
    toolbar.hidden = false;
    choice.addEventListener("change", function () {
        remember(choice.value);
        wait();
    });
    document.addEventListener("visibilitychange", function () {
        if (!document.hidden) {
            refresh();
        }
    });
    document.addEventListener("pointerdown", (event) => { isPressed = event.button === 0; }, true);
    ["pointerup", "pointercancel"].forEach((end) => document.addEventListener(end, () => { isPressed = false; }, true));
    wait();

    // When

    function wait() {
        clearTimeout(timer);
        const seconds = Number(choice.value);
        if (seconds && !isStopped) {
            timer = setTimeout(refresh, Math.max(seconds * 1000, failures && Math.min(1000 * 2 ** failures, LONGEST_PAUSE)));
        }
    }

    async function refresh() {
        if (isFetching || isStopped || !Number(choice.value)) {
            return;
        }
        isFetching = true;
        try {
            if (!document.hidden && !isBusy()) {
                await fetchPage();
            }
        } finally {
            isFetching = false;
            wait();
        }
    }

    function isBusy() {
        const selection = document.getSelection();
        const active = document.activeElement;
        return isPressed || regions(document).some((region) =>
            (selection && !selection.isCollapsed && selection.containsNode(region, true))
            || (region.contains(active) && active.matches(FIELDS))
            || Array.from(region.querySelectorAll(FIELDS)).some(isChanged));
    }

    function isChanged(field) {
        if (field.matches("select")) {
            const given = Array.from(field.options).findIndex((option) => option.defaultSelected);
            return field.selectedIndex !== Math.max(given, 0);
        }
        return /^(checkbox|radio)$/.test(field.type)
            ? field.checked !== field.defaultChecked
            : field.value !== field.defaultValue;
    }

    // What came

    async function fetchPage() {
        let response, text;
        const limit = new AbortController();
        const alarm = setTimeout(() => limit.abort(), PATIENCE);
        try {
            response = await fetch(location.href, {
                cache: "no-store", credentials: "same-origin", signal: limit.signal,
                headers: { Accept: "text/html", "X-Pgqueue-Live": "yes" },
            });
            text = await response.text();
        } catch {
            return fail();
        } finally {
            clearTimeout(alarm);
        }
        if (response.status === 401 || response.status === 403) {
            return stop("forbidden");
        }
        if (response.status === 404 || response.status === 410) {
            return stop("gone");
        }
        if (!response.ok) {
            return fail();
        }
        take(response, new DOMParser().parseFromString(text, "text/html"));
    }

    function take(response, page) {
        if (response.redirected && pathOf(response.url) !== location.pathname) {
            if (page.getElementById("pgqueue-live")) {
                isStopped = true; // while the answer is awaited, which the user may call off
                setTimeout(() => { isStopped = false; wait(); }, PATIENCE);
                location.reload(); // what is shown here has a page elsewhere now: the user is led there, with a message
            } else {
                stop(page.getElementById("login-form") ? "login" : "gone");
            }
            return;
        }
        if (!page.getElementById("pgqueue-live")) {
            stop("login");
            return;
        }
        failures = 0;
        say("");
        if (!document.hidden && !isBusy()) { // it may have changed while the answer was on its way
            swap(page);
        }
    }

    function fail() {
        failures += 1;
        say(toolbar.dataset.silent);
    }

    function stop(why) {
        isStopped = true;
        choice.disabled = true;
        say(toolbar.dataset[why]);
    }

    function say(words) {
        if (told.textContent !== words) { // read aloud where it changes, so only then
            told.textContent = words;
        }
    }

    // Swap

    function swap(page) {
        const fresh = new Map(regions(page).map((region) => [nameOf(region), region]));
        const names = [];
        regions(document).forEach(function (region) {
            const name = nameOf(region);
            const next = fresh.get(name);
            region.classList.toggle("pgqueue-gone", !next);
            if (!next || !region.isConnected || shown.get(name) === textOf(next)) {
                return;
            }
            shown.set(name, textOf(next));
            replace(region, document.adoptNode(next));
            names.push(name);
        });
        const here = new Set(regions(document).map(nameOf));
        more.hidden = Array.from(fresh.keys()).every((name) => here.has(name));
        if (names.length) {
            document.dispatchEvent(new CustomEvent("pgqueue:live", { detail: { names } }));
        }
    }

    function replace(old, next) {
        const folds = new Map(Array.from(old.querySelectorAll("details"), (fold) => [keyOf(fold), fold.open]));
        const scrolled = Array.from(old.querySelectorAll("*")).concat(old)
            .filter((element) => element.scrollTop || element.scrollLeft)
            .map((element) => [trail(old, element), element.scrollTop, element.scrollLeft]);
        const focused = old.contains(document.activeElement) ? document.activeElement : null;
        const place = focused && trail(old, focused);
        old.replaceWith(next);
        next.querySelectorAll("details").forEach(function (fold) {
            fold.open = folds.get(keyOf(fold)) ?? fold.open;
        });
        scrolled.forEach(function ([where, top, left]) {
            const element = follow(next, where);
            if (element) {
                element.scrollTop = top;
                element.scrollLeft = left;
            }
        });
        if (focused) {
            (same(next, focused) || follow(next, place) || next).focus({ preventScroll: true });
        }
    }

    function keyOf(fold) {
        const summary = fold.querySelector("summary");
        return fold.id || (summary ? summary.textContent.trim() : "");
    }

    function same(region, element) {
        return (element.id && region.querySelector("#" + CSS.escape(element.id)))
            || Array.from(region.querySelectorAll(element.localName)).find((other) =>
                element.href ? other.href === element.href : element.name && other.name === element.name);
    }

    /* The way from a region down to an element, by positions; followed in the new one as far as the tags agree. */
    function trail(region, element) {
        const steps = [];
        for (let here = element; here !== region; here = here.parentElement) {
            steps.unshift([Array.prototype.indexOf.call(here.parentElement.children, here), here.localName]);
        }
        return steps;
    }

    function follow(region, steps) {
        return steps.reduce(function (here, [index, tag]) {
            const child = here && here.children[index];
            return child && child.localName === tag ? child : null;
        }, region);
    }

    // Small things

    function regions(page) {
        return Array.from(page.querySelectorAll("[data-pgqueue-live]"));
    }

    function nameOf(region) {
        return region.dataset.pgqueueLive;
    }

    /* The token of a form is masked anew in each answer, which is no change. */
    function textOf(region) {
        return region.outerHTML.replace(/(name="csrfmiddlewaretoken" value=")[^"]*/g, "$1");
    }

    function pathOf(address) {
        return new URL(address, location.href).pathname;
    }

    function remembered() {
        try {
            const seconds = localStorage.getItem(KEY);
            return Array.from(choice.options).some((option) => option.value === seconds) ? seconds : null;
        } catch {
            return null; // a browser that keeps nothing
        }
    }

    function remember(seconds) {
        try {
            localStorage.setItem(KEY, seconds);
        } catch {
            // it holds for this page
        }
    }
}());
